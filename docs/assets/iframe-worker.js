// Browsers start no worker for a page that was opened as a file: there the
// search runs in a hidden frame, which answers as a worker would.
if (location.protocol === 'file:') {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement('iframe');
      this.frame.hidden = true;
      this.frame.answer = (data) =>
        this.dispatchEvent(new MessageEvent('message', {data}));
      this.frame.srcdoc =
        '<script>postMessage = (data) => frameElement.answer(data)</script>' +
        `<script src="${url}"></script>`;
      this.ready = new Promise((done) =>
        this.frame.addEventListener('load', done));
      document.body.append(this.frame);
    }
    postMessage(data) {
      this.ready.then(() => {
        const inside = this.frame.contentWindow;
        inside.dispatchEvent(new inside.MessageEvent('message', {data}));
      });
    }
    terminate() {
      this.frame.remove();
    }
  };
}

"""Mixtures of ECS: English Wikipedia with another language's, or its web text.

For en-fr, en-ru and en-zh: `ecs.wiki.en_fr` (both from Wikipedia) and
`ecs.wiki_cc.en_fr` (the second language from Common Crawl), rates N^0.7. Wu,
Conneau et al. 2020, sections 3.1 and 4.1.
"""

from xlflax.data.seqio_tasks import task_registry as task_registry
from xlflax.tasks import mc4, wiki40b

# Language -> its tasks of Wikipedia and of web pages.
_TASKS = {
  'fr': ('wiki40b.fr', 'mc4.fr'),
  'ru': ('wiki40b.ru', 'mc4.ru'),
  'zh': ('wiki40b.zh_CN', 'mc4.zh'),
}
ENGLISH = 'wiki40b.en'
MODULES = (wiki40b, mc4)  # they register the tasks

for _language, (_wiki, _web) in _TASKS.items():
  task_registry.add_mixture(f'ecs.wiki.en_{_language}', [ENGLISH, _wiki])
  task_registry.add_mixture(f'ecs.wiki_cc.en_{_language}', [ENGLISH, _web])

"""Mixtures of English and one other language, as in Wu, Conneau et al. (2020).

There are mixtures for en-fr, en-ru and en-zh. They sample each language at a
rate proportional to N^0.7, where N is its number of examples. In
`ecs.wiki.en_fr`, both languages come from Wikipedia. In `ecs.wiki_cc.en_fr`,
the second language comes from Common Crawl. Source: ECS (Wu, Conneau et al.
2020), sections 3.1 and 4.1.
"""

from xlflax.data.seqio_tasks import task_registry
from xlflax.tasks import mc4, wiki40b

# Map from language to its tasks over Wikipedia and over web pages.
_TASKS = {
  'fr': ('wiki40b.fr', 'mc4.fr'),
  'ru': ('wiki40b.ru', 'mc4.ru'),
  'zh': ('wiki40b.zh_CN', 'mc4.zh'),
}
ENGLISH = 'wiki40b.en'
MODULES = (wiki40b, mc4)  # Importing them registers the tasks.

for _language, (_wiki, _web) in _TASKS.items():
  task_registry.add_mixture(f'ecs.wiki.en_{_language}', [ENGLISH, _wiki])
  task_registry.add_mixture(f'ecs.wiki_cc.en_{_language}', [ENGLISH, _web])

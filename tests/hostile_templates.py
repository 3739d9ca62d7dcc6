"""Chat templates that take for ever, fill the memory, or reach for what is none of theirs."""

HOSTILE = {
    "loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "loops over a text": "{% for i in 'a' * 9999 %}{% for j in range(99999) %}{% if j %}"
    "{% endif %}{% endfor %}{% endfor %}",
    "loops in a macro": "{% macro f() %}{% for i in range(99999) %}{% for j in range(99999) %}"
    "{% endfor %}{% endfor %}{% endmacro %}{{ f() }}",
    "loops without a call": "{% set r = range(99999) | list %}{% for i in r %}{% for j in r %}"
    "{% endfor %}{% endfor %}",
    "calls without a loop": "{% macro f(l) %}{% if l %}{% if f(l[1:]) or f(l[1:]) %}{% endif %}"
    "{% endif %}{% endmacro %}{{ f([1] * 60) }}",
    "filters": "{% for i in range(99999) %}{% set x = range(99999) | map('string') | list %}"
    "{% endfor %}",
    "macros that call twice": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}"
    "{% endmacro %}{{ f(60) }}",
    "macro without end": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "recursive loop": "{% for x in range(9999) recursive %}{{ loop(range(9999)) }}{% endfor %}",
    "output": "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}",
    "doubling ~": "{% set n = namespace(s='x') %}{% for i in range(60) %}"
    "{% set n.s = n.s ~ n.s %}{% endfor %}",
    "doubling +": "{% set n = namespace(s='x') %}{% for i in range(60) %}"
    "{% set n.s = n.s + n.s %}{% endfor %}",
    "doubling a list": "{% set n = namespace(s=[1]) %}{% for i in range(60) %}"
    "{% set n.s = n.s + n.s %}{% endfor %}",
    "doubling a block": "{% set n = namespace(s='x') %}{% for i in range(60) %}"
    "{% set x %}{{ n.s }}{{ n.s }}{% endset %}{% set n.s = x %}{% endfor %}",
    "lists that share": "{% set n = namespace(s=[1]) %}{% for i in range(60) %}"
    "{% set n.s = [n.s, n.s] %}{% endfor %}{{ n.s | tojson }}",
    "tuples that share": "{% set n = namespace(s=(1,)) %}{% for i in range(60) %}"
    "{% set n.s = (n.s, n.s) %}{% endfor %}{{ n.s }}",
    "dicts that share": "{% set n = namespace(s={}) %}{% for i in range(60) %}"
    "{% set n.s = {'a': n.s, 'b': n.s} %}{% endfor %}{{ n.s }}",
    "dict() that shares": "{% set n = namespace(s={}) %}{% for i in range(60) %}"
    "{% set n.s = dict(a=n.s, b=n.s) %}{% endfor %}{{ n.s }}",
    "deep list": "{% set n = namespace(s=[]) %}{% for i in range(5000) %}"
    "{% set n.s = [n.s] %}{% endfor %}{{ n.s }}",
    "times": "{{ 'x' * 10 ** 10 }}",
    "times from the left": "{{ 10 ** 10 * 'x' }}",
    "times a list": "{{ [0] * 10 ** 10 }}",
    "times a text list": "{{ (['x' * 99999] * 99999) | join }}",
    "power": "{{ 9 ** (9 ** 9) }}",
    "power by steps": "{% set n = namespace(s=9) %}{% for i in range(60) %}"
    "{% set n.s = n.s * n.s %}{% endfor %}",
    "width": "{{ '%10000000000d' % 1 }}",
    "width after a key": "{{ '%(a)10000000000d' % {'a': 1} }}",
    "computed width": "{{ '%*d' % (10 ** 10, 1) }}",
    "width filter": "{{ '%10000000000d' | format(1) }}",
    "width method": "{{ '{:10000000000}'.format(1) }}",
    "computed width method": "{{ '{:{}}'.format(1, 10 ** 10) }}",
    "width by map": "{{ ['%10000000000d'] | map('format', 1) | list }}",
    "indent": "{{ 'a' | indent(10 ** 9, true) }}",
    "indent by text": "{{ ('\n' * 99999) | indent('x' * 99999) }}",
    "round": "{{ 1.5 | round(10 ** 9) }}",
    "tojson": "{{ messages | tojson(indent=10 ** 9) }}",
    "replace": "{{ ('a' * 99999).replace('', 'b' * 99999) }}",
    "replace filter": "{{ ('a' * 99999) | replace('a', 'b' * 99999) }}",
    "replace filter by name": "{{ ('a' * 99999) | replace(old='a', new='b' * 99999) }}",
    "join": "{{ ('b' * 99999).join('a' * 99999) }}",
    "join filter": "{{ ('a' * 99999) | join('b' * 99999) }}",
    "ljust": "{{ 'a'.ljust(10 ** 10) }}",
    "center": "{{ 'a' | center(10 ** 10) }}",
    "to_bytes": "{{ (5).to_bytes(10 ** 10) }}",
    "translate": "{{ 'a'.translate({97: 'x' * 9999}) }}",
    "classes": "{{ ().__class__.__base__.__subclasses__() }}",
    "globals": "{{ cycler.__init__.__globals__.os }}",
    "attr": "{{ 'a' | attr('__class__') }}",
    "globals by format": "{{ '{0.__class__.__mro__}'.format(1).x.y }}",
    "append": "{{ messages.append(1) }}",
    "include": "{% include 'x' %}",
    "extends": "{% extends 'x' %}",
    "raises": "{{ raise_exception('roles must alternate') }}",
    "undefined": "{{ x.y.z }}",
    "no function": "{{ messages() }}",
    "parentheses": "{{" + "(" * 5000 + "1" + ")" * 5000 + "}}",
    "signs": "{{" + "-" * 50000 + "1}}",
    "sum": "{{ 1" + "+1" * 30000 + "}}",
    "nested ifs": "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
    "nested loops": "{% for i in [1] %}" * 30 + "{% endfor %}" * 30,
    "syntax": "{% for %}",
    "unclosed": "{{ 'a",
    "date": "{{ strftime_now('%Y' * 999) }}",
    "many texts": "".join(f"{{% set a{i} = 'x' * 999999 %}}" for i in range(6000)),
    "many slices": "{% set t = 'x' * 999999 %}"
    + "".join(f"{{% set a{i} = t[{i}:] %}}" for i in range(6000)),
    "many blocks": "{% set t = 'x' * 999999 %}"
    + "".join(f"{{% set a{i} %}}{{{{ t }}}}{{% endset %}}" for i in range(5000)),
    "one value many times": "{{ ('%(a)s' * 9999) % {'a': 'x' * 999999} }}",
    "many keys": "{{ ('%(' * 199999) % {'a': 1} }}",
    "many braces": "{{ ('{' * 199999).format(1) }}",
    "one value many times by filter": "{{ ('%(a)s' * 9999) | format(a='x' * 999999) }}",
    "one value many times by braces": "{{ ('{0}' * 9999).format('x' * 999999) }}",
    "one value many times by name": "{{ ('{a}' * 9999).format(a='x' * 999999) }}",
    "search in a list": "{% set r = range(99999) | list %}{{ r | reject('in', r) | list }}"
    "{{ r | reject('in', r) | list }}{{ r | reject('in', r) | list }}"
    "{% for i in r %}{{ r | reject('in', r) | list }}{% endfor %}",
    "sum of lists": "{{ ([[1]] * 120000) | sum(start=[]) }}",
    "batch": "{{ [1] | batch(10 ** 9, 'x') | list }}",
    "slice filter": "{{ [1] | slice(10 ** 9) | list }}",
    "indented JSON": "{% set n = namespace(s=[1] * 99999) %}{% for i in range(60) %}"
    "{% set n.s = [n.s] %}{% endfor %}{{ n.s | tojson(indent=16) }}",
    "separators in JSON": "{{ ([1] * 9999) | tojson(separators=('x' * 9999, ':')) }}",
    "wordwrap": "{{ 'a' | wordwrap(10) }}",
    "cycler": "{{ cycler.__class__ }}{{ cycler('a').items.append(1) }}",
    "joiner": "{{ joiner('x' * 9999).sep.__class__.__mro__[0].x.y }}",
    "lipsum": "{{ lipsum(99999) }}",
    "range": "{{ range(10 ** 9) | list }}",
    "read a file": "{{ (messages | map(attribute='__init__') | first).__globals__['open']('x') }}",
    "macro as an object": "{% macro f() %}{% endmacro %}{{ f._func.__globals__ }}"
    "{{ f._func.__globals__.x.y }}",
    "self": "{{ self.__init__.__globals__.x }}",
    "context": "{{ loop.x.y }}",
    "format by map": "{{ ['{0.__class__}'] | map('format') | list }}{{ x.y.z }}",
}

"""Chat templates for tests: small ones in the formats of Gemma 4, FunctionGemma and Gemma 3.

Written for these tests. They render the first request with plain tools, calls and results in the
families' formats, and leave out all else that a real template has.
"""

# ruff: noqa: E501 - lines of templates

GEMMA4 = """\
{%- macro value(v) -%}
{%- if v is string -%}<|"|>{{ v }}<|"|>
{%- elif v is boolean -%}{{ 'true' if v else 'false' }}
{%- elif v is mapping -%}
{ {{- '' -}}
{%- for key, item in v | dictsort -%}{{ key }}:{{ value(item) }}{{ ',' if not loop.last }}{%- endfor -%}
{{- '}' -}}
{%- else -%}{{ v }}
{%- endif -%}
{%- endmacro -%}
{{- bos_token -}}
{%- set rest = messages -%}
{%- if tools or messages[0].role == 'system' -%}
{{- '<|turn>system\\n' -}}
{%- if messages[0].role == 'system' -%}{{- messages[0].content | trim -}}{%- set rest = messages[1:] -%}{%- endif -%}
{%- for tool in tools or [] -%}
{%- set f = tool.function -%}
{{- '<|tool>declaration:' + f.name + '{description:<|"|>' + f.description + '<|"|>,parameters:{' -}}
{%- if f.parameters.properties -%}
properties:{ {{- '' -}}
{%- for name, p in f.parameters.properties | dictsort -%}
{{- name -}}:{description:<|"|>{{ p.description }}<|"|>,type:<|"|>{{ p.type | upper }}<|"|>}{{ ',' if not loop.last }}
{%- endfor -%}
{{- '},' -}}
{%- endif -%}
{%- if f.parameters.required -%}required:[{% for n in f.parameters.required %}<|"|>{{ n }}<|"|>{{ ',' if not loop.last }}{% endfor %}],{%- endif -%}
{{- 'type:<|"|>OBJECT<|"|>}}<tool|>' -}}
{%- endfor -%}
{{- '<turn|>\\n' -}}
{%- endif -%}
{%- set ns = namespace(open=false) -%}
{%- for m in rest -%}
{%- if m.role == 'user' -%}
{{- '<turn|>\\n' if ns.open -}}{%- set ns.open = false -%}
{{- '<|turn>user\\n' + m.content | trim + '<turn|>\\n' -}}
{%- else -%}
{{- '<|turn>model\\n' if not ns.open -}}
{%- set ns.open = true -%}
{{- m.content -}}
{%- for c in m.tool_calls or [] -%}
{{- '<|tool_call>call:' + c.function.name + value(c.function.arguments) + '<tool_call|>' -}}
{%- endfor -%}
{%- for r in m.tool_responses or [] -%}
{{- '<|tool_response>response:' + r.name + value(r.response) + '<tool_response|>' -}}
{%- endfor -%}
{%- if not m.tool_calls and not m.tool_responses -%}{{- '<turn|>\\n' -}}{%- set ns.open = false -%}{%- endif -%}
{%- endif -%}
{%- endfor -%}
{{- '<|turn>model\\n' if add_generation_prompt and not ns.open -}}
"""

FUNCTIONGEMMA = """\
{%- macro value(v) -%}
{%- if v is string -%}<escape>{{ v }}<escape>
{%- elif v is none -%}null
{%- elif v is boolean -%}{{ 'true' if v else 'false' }}
{%- elif v is mapping -%}
{ {{- '' -}}
{%- for key, item in v | dictsort -%}{{ key }}:{{ value(item) }}{{ ',' if not loop.last }}{%- endfor -%}
{{- '}' -}}
{%- elif v is sequence -%}
[ {{- '' -}}
{%- for item in v -%}{{ value(item) }}{{ ',' if not loop.last }}{%- endfor -%}
{{- ']' -}}
{%- else -%}{{ v }}
{%- endif -%}
{%- endmacro -%}
{{- bos_token -}}
{%- set rest = messages -%}
{%- if tools or (messages and messages[0].role in ['system', 'developer']) -%}
{{- '<start_of_turn>developer\\n' -}}
{%- if messages and messages[0].role in ['system', 'developer'] -%}{{- messages[0].content | trim -}}{%- set rest = messages[1:] -%}{%- endif -%}
{%- for tool in tools or [] -%}
{%- set f = tool.function -%}
{{- '<start_function_declaration>declaration:' + f.name + '{description:' + value(f.description) + ',parameters:{' -}}
{%- if f.parameters.properties -%}
properties:{ {{- '' -}}
{%- for name, p in f.parameters.properties | dictsort -%}
{{- name -}}:{description:{{ value(p.description) }},type:{{ value(p.type | upper) }}}{{ ',' if not loop.last }}
{%- endfor -%}
{{- '},' -}}
{%- endif -%}
{%- if f.parameters.required -%}required:{{ value(f.parameters.required) }},{%- endif -%}
{{- 'type:<escape>OBJECT<escape>}}<end_function_declaration>' -}}
{%- endfor -%}
{{- '<end_of_turn>\\n' -}}
{%- endif -%}
{%- set ns = namespace(last='') -%}
{%- for m in rest -%}
{%- if m.role == 'tool' -%}
{%- for r in m.content -%}
{{- '<start_function_response>response:' + r.name + value(r.response) + '<end_function_response>' -}}
{%- endfor -%}
{%- set ns.last = 'result' -%}
{%- else -%}
{{- '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' if ns.last not in ['call', 'result'] -}}
{{- m.content | trim -}}
{%- for c in m.tool_calls or [] -%}
{{- '<start_function_call>call:' + c.function.name + value(c.function.arguments) + '<end_function_call>' -}}
{%- endfor -%}
{%- if not m.tool_calls -%}{{- '<end_of_turn>\\n' -}}{%- endif -%}
{%- if m.tool_calls and (loop.last or loop.nextitem.role != 'tool') -%}{{- '<start_function_response>' -}}{%- endif -%}
{%- set ns.last = 'call' if m.tool_calls else '' -%}
{%- endif -%}
{%- endfor -%}
{{- '<start_of_turn>model\\n' if ns.last not in ['call', 'result'] -}}
"""

GEMMA3 = """\
{{- bos_token -}}
{%- for m in messages -%}
{{- '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' -}}
{{- m.content + '<end_of_turn>\\n' -}}
{%- endfor -%}
{{- '<start_of_turn>model\\n' -}}
"""

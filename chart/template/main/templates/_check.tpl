{{- /* Fails on a value that the daemon would refuse: `path` is the value's path, `rule` the rule of its option. */ -}}
{{- define "multus.checkValue" -}}
{{- $text := toString .value -}}
{{- if not (or (kindIs "invalid" .value) (eq $text "")) -}}
{{- if and .rule.path (not (hasPrefix "/" $text)) -}}
{{- fail (printf "%s is %s, but must be an absolute path on the node: write the complete path, or remove the value" .path $text) -}}
{{- end -}}
{{- if and .rule.words (not (has (lower $text) .rule.words)) -}}
{{- fail (printf "%s is %s, but must be one of %s: correct it, or remove the value" .path $text (join ", " .rule.words)) -}}
{{- end -}}
{{- if .rule.least -}}
{{- $number := int64 .value -}}
{{- if or (lt $number (int64 .rule.least)) (and .rule.most (gt $number (int64 .rule.most))) -}}
{{- $most := "" -}}
{{- if .rule.most }}{{ $most = printf " to %d" (int64 .rule.most) }}{{ end -}}
{{- fail (printf "%s is %s, but must be a whole number from %d%s: correct it, or remove the value" .path $text (int64 .rule.least) $most) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The edit distance: the number of letters that have to be inserted, removed or changed to get from one word to the other. */ -}}
{{- define "multus.distance" -}}
{{- $row := until (int (add1 (len .to))) -}}
{{- $to := splitList "" .to -}}
{{- range $at, $left := splitList "" .from -}}
{{- $next := list (add1 $at) -}}
{{- range $column, $right := $to -}}
{{- $changed := index $row $column -}}
{{- if ne $left $right }}{{ $changed = add1 $changed }}{{ end -}}
{{- $next = append $next (min $changed (add1 (index $row (int (add1 $column)))) (add1 (index $next $column))) -}}
{{- end -}}
{{- $row = $next -}}
{{- end -}}
{{- last $row -}}
{{- end -}}

{{- /* The option that is nearest to a misspelled key, by the daemon's rule; empty when none is near. */ -}}
{{- define "multus.meant" -}}
{{- $key := lower .key -}}
{{- $far := 2 -}}
{{- if lt (len $key) 10 }}{{ $far = 1 }}{{ end -}}
{{- $meant := "" -}}
{{- if ge (len $key) 6 -}}
{{- range $name := .names -}}
{{- $longer := sub (len $name) (len $key) -}}
{{- if and (le $longer (int64 $far)) (ge $longer (sub 0 $far)) -}}
{{- $distance := int (include "multus.distance" (dict "from" $key "to" (lower $name))) -}}
{{- if le $distance $far }}{{ $meant = $name }}{{ $far = sub $distance 1 | int }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $meant -}}
{{- end -}}

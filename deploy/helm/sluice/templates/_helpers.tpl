{{/* The name of all objects: the release's, with the chart's unless it has that. */}}
{{- define "sluice.name" -}}
{{- $name := ternary .Release.Name (printf "%s-sluice" .Release.Name) (contains "sluice" .Release.Name) -}}
{{- if not (regexMatch "^[a-z][-a-z0-9]*$" $name) -}}
{{- fail (printf "the release %s cannot name a Service: take a letter first, and no dot" .Release.Name) -}}
{{- end -}}
{{- trunc 40 $name | trimSuffix "-" -}}
{{- end }}

{{- define "sluice.selector" -}}
app.kubernetes.io/name: sluice
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: {{ .component | quote }}
{{- end }}

{{- define "sluice.labels" -}}
{{ include "sluice.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end }}

{{/* Address of an image, of `repository`, `tag` and `digest`. */}}
{{- define "sluice.address" -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag }}{{ end }}
{{- end }}

{{- define "sluice.image" -}}
{{- if not .Values.image.repository -}}
{{- fail "image.repository: no registry has an image of Sluice; build one, push it, and name it here, as registry.example/sluice: docs/kubernetes.md#images" -}}
{{- end -}}
{{- include "sluice.address" (merge (dict "tag" (.Values.image.tag | default .Chart.AppVersion)) .Values.image) -}}
{{- end }}

{{/* That of job and report: named after the proxy's where it has no name or tag of its own. */}}
{{- define "sluice.jobImage" -}}
{{- $own := .Values.compliance.image -}}
{{- $repository := $own.repository | default (printf "%s-compliance" .Values.image.repository) -}}
{{- $tag := $own.tag | default .Values.image.tag | default .Chart.AppVersion -}}
{{- include "sluice.address" (dict "repository" $repository "tag" $tag "digest" $own.digest) -}}
{{- end }}

{{/* "true" if there may be several replicas. */}}
{{- define "sluice.isSeveral" -}}
{{- if or .Values.autoscaling.enabled (gt (int .Values.replicas) 1) }}true{{ end }}
{{- end }}

{{/* "true" if pods keep something, and so need names that stay. */}}
{{- define "sluice.isStateful" -}}
{{- if or .Values.store.size (and .Values.accessLog.enabled .Values.accessLog.persistent) }}true{{ end }}
{{- end }}

{{- define "sluice.port" -}}
{{ ternary 6651 6650 (not (empty .Values.tls.secret)) }}
{{- end }}

{{- define "sluice.logClaim" -}}
{{ .Values.accessLog.existingClaim | default (printf "%s-access-log" (include "sluice.name" .)) }}
{{- end }}

{{- define "sluice.tablesClaim" -}}
{{ .Values.compliance.existingClaim | default (printf "%s-compliance" (include "sluice.name" .)) }}
{{- end }}

{{/* A size as 4Gi in MiB. */}}
{{- define "sluice.mebibytes" -}}
{{- $number := regexFind "^[0-9]+" . | int64 -}}
{{- mul $number (get (dict "Mi" 1 "Gi" 1024 "Ti" 1048576) (trimPrefix (toString $number) .)) -}}
{{- end }}

{{/* Seconds of a duration of sluice.yaml: 300, 30s, 5min. */}}
{{- define "sluice.seconds" -}}
{{- $text := toString . | replace " " "" -}}
{{- $unit := regexFind "[a-z]*$" $text -}}
{{- mulf (trimSuffix $unit $text | float64) (get (dict "" 1.0 "ms" 0.001 "s" 1.0 "min" 60.0 "h" 3600.0 "d" 86400.0) $unit) -}}
{{- end }}

{{/* MiB of a size of sluice.yaml, or of a quantity of Kubernetes: 64MiB, 1GB, 1Gi, 1.5G. */}}
{{- define "sluice.mebibytesOf" -}}
{{- $text := toString . | replace " " "" -}}
{{- $unit := regexFind "[A-Za-z]*$" $text -}}
{{- $bytes := dict "" 1.0 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 -}}
{{- $unit = trimSuffix "B" $unit | replace "K" "k" | replace "ki" "Ki" -}}
{{- divf (mulf (regexReplaceAll "[A-Za-z]*$" $text "" | float64) (get $bytes $unit)) 1048576.0 -}}
{{- end }}

{{/* Seconds for a pod to end: those that are given, or the longest drain, the longest end of a connection, and 20 more. */}}
{{- define "sluice.grace" -}}
{{- $config := include "sluice.config" . | fromYaml -}}
{{- $timeout := dig "drain" "timeout" "30s" $config -}}
{{- $linger := $config.linger | default "10s" -}}
{{- $ends := addf (include "sluice.seconds" $timeout | float64) (include "sluice.seconds" $linger | float64) | ceil | int64 -}}
{{- $given := .Values.terminationGracePeriodSeconds -}}
{{- if and (not (kindIs "invalid" $given)) (lt (int64 $given) (add $ends 5)) -}}
{{- fail (printf "terminationGracePeriodSeconds: %d is less than config.drain.timeout (%v), config.linger (%v) and 5 s together; write %d, or null, from which the chart reckons it" (int64 $given) $timeout $linger (add $ends 5)) -}}
{{- end -}}
{{- if kindIs "invalid" $given -}}{{ add $ends 20 }}{{- else -}}{{ int64 $given }}{{- end -}}
{{- end }}

{{/* MiB that the memory limit leaves beside what the configuration lets clients take; "" without a limit. */}}
{{- define "sluice.memoryLeft" -}}
{{- $limit := dig "limits" "memory" "" .Values.resources -}}
{{- if $limit -}}
{{- $config := include "sluice.config" . | fromYaml -}}
{{- $clients := dig "client_memory" "total" "512MiB" $config -}}
{{- $held := dig "publish" "hold_total" "64MiB" $config -}}
{{- $bounds := addf (include "sluice.mebibytesOf" $clients | float64) (include "sluice.mebibytesOf" $held | float64) -}}
{{- $left := subf (include "sluice.mebibytesOf" $limit | float64) $bounds -}}
{{- if lt $left 0.0 -}}
{{- fail (printf "resources.limits.memory: %v is less than config.client_memory.total (%v) and config.publish.hold_total (%v) together; write %dMi, or lower these: docs/sizing.md" $limit $clients $held (addf $bounds 448.0 | ceil | int64)) -}}
{{- end -}}
{{ floor $left | int64 }}
{{- end -}}
{{- end }}

{{/* Hosts of `broker`, as JSON. */}}
{{- define "sluice.brokerHosts" -}}
{{- $hosts := list -}}
{{- range ternary (list .Values.broker) .Values.broker (kindIs "string" .Values.broker) -}}
{{- $hosts = append $hosts (regexReplaceAll ":[0-9]+/?$" (regexReplaceAll "^[a-z+]+://" . "") "" | lower) -}}
{{- end -}}
{{- toJson $hosts -}}
{{- end }}

{{/* MiB that each replica's closed files may have: four fifths of its part of a claim that all share, or of its own emptyDir,
     as the open file and the queue come on top. */}}
{{- define "sluice.retainSize" -}}
{{- $sharers := 1 -}}
{{- if .Values.accessLog.persistent -}}
{{- $sharers = ternary .Values.autoscaling.maxReplicas .Values.replicas .Values.autoscaling.enabled | int -}}
{{- end -}}
{{- $each := div (mul 4 (include "sluice.mebibytes" .Values.accessLog.size | int64)) (mul 5 $sharers) -}}
{{- $rotate := dig "access_log" "rotate_size" "64MiB" .Values.config -}}
{{- $least := mulf 4.0 (include "sluice.mebibytesOf" $rotate | float64) | ceil | int64 -}}
{{- if lt $each $least -}}
{{- $gibibytes := divf (mulf 1.25 $sharers $least) 1024.0 | ceil | int64 -}}
{{- fail (printf "accessLog.size: %s is too little for %s: each keeps 4 closed files of config.access_log.rotate_size (%v) at least; write %dGi" .Values.accessLog.size (eq $sharers 1 | ternary "a pod" (printf "%d replicas" $sharers)) $rotate $gibibytes) -}}
{{- end -}}
{{ $each }}MiB
{{- end }}

{{/* The name by which commands in a pod ask its admin address, if that has TLS. */}}
{{- define "sluice.adminHost" -}}
{{ .Values.admin.commands.host | default (printf "%s-admin.%s.svc" (include "sluice.name" .) .Release.Namespace) }}
{{- end }}

{{/* Where the docs are; files of rules and dashboards have an address of the reader's own machine in its place. */}}
{{- define "sluice.docs" -}}
{{ trimSuffix "/" .Values.docsUrl }}
{{- end }}

{{/* A dashboard whose links lead to the docs; without docs it has neither links nor the variable of their address. */}}
{{- define "sluice.dashboard" -}}
{{- if .docs -}}
{{ .text | replace "http://localhost:8000" .docs }}
{{- else -}}
{{- $dashboard := mustFromJson .text -}}
{{- range $dashboard.panels -}}
{{- $_ := unset . "links" -}}
{{- end -}}
{{- $variables := list -}}
{{- range $dashboard.templating.list -}}
{{- if ne .name "docs" -}}
{{- $variables = append $variables . -}}
{{- end -}}
{{- end -}}
{{- $_ := set $dashboard.templating "list" $variables -}}
{{ mustToPrettyJson $dashboard }}
{{- end -}}
{{- end }}

{{/* sluice.yaml: what the chart decides, under `config`. Its brokers are variables of the pods: sluice.brokers. */}}
{{- define "sluice.config" -}}
{{- $bind := .Values.bindAddress -}}
{{- $admin := ternary "127.0.0.1:8080" (printf "%s:8080" $bind) (empty .Values.admin.tokensSecret) -}}
{{- $own := dict "listen" (printf "%s:6650" $bind) "admin" $admin "metrics" (printf "%s:9100" $bind) -}}
{{- with .Values.tls.secret -}}
{{- $folder := printf "/run/secrets/%s" . -}}
{{- $_ := set $own "listen" (printf "pulsar+ssl://%s:6651" $bind) -}}
{{- $_ := set $own "tls" (dict "certificate" (printf "%s/tls.crt" $folder) "key" (printf "%s/tls.key" $folder)) -}}
{{- end -}}
{{- $access := dict -}}
{{- with .Values.admin.tokensSecret -}}
{{- $_ := set $access "tokens" (printf "/run/secrets/%s/tokens.yaml" .) -}}
{{- end -}}
{{- with .Values.admin.tlsSecret -}}
{{- $folder := printf "/run/secrets/%s" . -}}
{{- $_ := set $access "tls" (dict "certificate" (printf "%s/tls.crt" $folder) "key" (printf "%s/tls.key" $folder)) -}}
{{- end -}}
{{- if $access -}}
{{- $_ := set $own "admin_access" $access -}}
{{- end -}}
{{- if .Values.accessLog.enabled -}}
{{- $_ := set $own "access_log" (dict "dir" "/var/log/sluice" "retain_size" (include "sluice.retainSize" .)) -}}
{{- end -}}
{{- if .Values.store.size -}}
{{- $_ := set $own "policies" (dict "store" "/var/lib/sluice/policies.db") -}}
{{- $_ := set $own "drain" (dict "state" "/var/lib/sluice/balances") -}}
{{- end -}}
{{- if or .Values.config.fleet (and .Values.fleet (include "sluice.isSeveral" .)) -}}
{{- /* Of namespace and release, as installations of one name at the same brokers would be one fleet. */ -}}
{{- $_ := set $own "fleet" (dict "name" (printf "%s-%s" .Release.Namespace (include "sluice.name" .) | trunc 100 | trimSuffix "-")) -}}
{{- end -}}
{{- toYaml (omit (mustMergeOverwrite $own (deepCopy .Values.config)) "allowed_brokers" "allowed_broker_networks") -}}
{{- include "sluice.limits" . | nindent 0 -}}
{{- end }}

{{/* Limits that are a text go into sluice.yaml as they are. Names in a mapping have been read by Helm: 7 may have been 007,
     and false may have been no. */}}
{{- define "sluice.limits" -}}
{{- $limits := .Values.limits -}}
{{- if kindIs "invalid" $limits -}}
{{- fail "limits: nothing is written here; write {} for no limits" -}}
{{- else if kindIs "string" $limits -}}
{{- $text := regexReplaceAll "^---[ \\t]*\n" ($limits | trimPrefix "\ufeff" | replace "\r\n" "\n") "" -}}
{{- if regexMatch "[\\r\\x{85}\\x{2028}\\x{2029}]" $text -}}
{{- fail "limits: the text has a line break other than LF and CRLF (CR, U+0085, U+2028 or U+2029), which YAML and Helm read in different ways; replace it" -}}
{{- end -}}
{{- $read := fromYaml $text -}}
{{- if kindIs "string" $read.Error -}}
{{- fail (printf "limits: Helm cannot read the text; mend it, or quote a name such as null: %s" $read.Error) -}}
{{- else if not $read -}}
{{- fail "limits: the text has no limits; write {} in its place for none" -}}
{{- end -}}
{{- $levels := list "plans" "proxy" "tenants" "namespaces" "resource_groups" "topics" "each_topic" "each_subscription" "producers" "roles" "addresses" "exempt" -}}
{{- range $level, $_ := $read -}}
{{- if not (has $level $levels) -}}
{{- fail (printf "limits: the text begins with %s, which is no level; levels are %s" $level (join ", " $levels)) -}}
{{- end -}}
{{- end -}}
{{- printf "limits:\n%s" ($text | indent 2) -}}
{{- else -}}
{{- $named := deepCopy $limits -}}
{{- range $topic, $_ := $limits.topics -}}
{{- $_ := set $named (printf "topics.%s.subscriptions" $topic) (dig "subscriptions" dict . | default dict) -}}
{{- end -}}
{{- range $level, $names := $named -}}
{{- range $name, $_ := $names -}}
{{- if regexMatch "^([-+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][-+]?[0-9]+)?|[-+]?[.](inf|Inf|INF)|[.](nan|NaN|NAN)|true|false|null|<nil>)$" (toString $name) -}}
{{- fail (printf "limits.%s.%s: this may be the name that was written, or what Helm makes of 007, 1_000 or no; give limits as text, which Helm leaves alone: --set-file limits=FILE, or limits: |" $level $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml (dict "limits" $limits) -}}
{{- end -}}
{{- end }}

{{/* The brokers, as variables. The ConfigMap reaches pods that run, and variables do not: an update to a wrong broker stops
     at its first pod. A comma alone is the empty list. */}}
{{- define "sluice.brokers" -}}
- {name: SLUICE_BROKER, value: {{ ternary (list .Values.broker) .Values.broker (kindIs "string" .Values.broker) | join "," | quote }}}
{{- range list "allowed_brokers" "allowed_broker_networks" }}
- {name: {{ printf "SLUICE_%s" (upper .) | quote }}, value: {{ get $.Values.config . | default list | join "," | default "," | quote }}}
{{- end }}
{{- end }}

{{/* All Secrets that are mounted, each once, as JSON. */}}
{{- define "sluice.secrets" -}}
{{- concat .Values.secrets (list .Values.tls.secret .Values.admin.tokensSecret .Values.admin.tlsSecret) | compact | uniq | toJson -}}
{{- end }}

{{/* The "restricted" pod security standard. */}}
{{- define "sluice.podSecurity" -}}
runAsNonRoot: true
seccompProfile: {type: RuntimeDefault}
{{- with .Values.fsGroup }}
fsGroup: {{ int64 . }}
fsGroupChangePolicy: OnRootMismatch
{{- end }}
{{- end }}

{{- define "sluice.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Where pods go; the same for all. */}}
{{- define "sluice.placement" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ range . }}
  - name: {{ . | quote }}{{ end }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end }}

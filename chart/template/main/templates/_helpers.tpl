{{- define "multus.labels" -}}
tier: node
app: {{ .Chart.Name }}
{{- end -}}

{{- /* "true" for true and "true", nothing for everything else. */ -}}
{{- define "multus.true" -}}
{{- if eq (toString .) "true" }}true{{ end -}}
{{- end -}}

{{- define "multus.image" -}}
{{- $image := .Values.image | default dict -}}
{{- $own := (.Values.thickPlugin | default dict).image | default dict -}}
{{- $registry := (.Values.global | default dict).systemDefaultRegistry | default "" -}}
{{- if $registry }}{{ trimSuffix "/" $registry }}/{{ end -}}
{{ $own.repository | default $image.repository }}:{{ $own.tag | default $image.tag }}
{{- end -}}

{{- define "multus.pullPolicy" -}}
{{- $own := (.Values.thickPlugin | default dict).image | default dict -}}
{{ $own.pullPolicy | default (.Values.image | default dict).pullPolicy | default "IfNotPresent" }}
{{- end -}}

{{- /* What the daemon may do; without some of it nothing works. */ -}}
{{- define "multus.capabilities" -}}
{{- /* Reused values of a release before this one have no such value. */ -}}
{{- $capabilities := (.Values.daemonSecurity | default dict).capabilities -}}
{{- if kindIs "invalid" $capabilities -}}
{{- $capabilities = list "CHOWN" "DAC_OVERRIDE" "FOWNER" "IPC_LOCK" "KILL" "MKNOD" "NET_ADMIN" "NET_BIND_SERVICE" "NET_RAW" "SETGID" "SETUID" "SYS_ADMIN" "SYS_CHROOT" "SYS_PTRACE" -}}
{{- end -}}
{{- range list "SYS_ADMIN" "SYS_CHROOT" "SYS_PTRACE" -}}
{{- if not (has . $capabilities) -}}
{{- fail (printf "daemonSecurity.capabilities lacks %s, which the daemon needs to enter the runtime's namespaces: add it, or leave the value out" .) -}}
{{- end -}}
{{- end -}}
{{- toYaml $capabilities -}}
{{- end -}}

{{- /* Nodes that the image is made for. */ -}}
{{- define "multus.affinity" -}}
{{- with .Values.architectures -}}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
    - matchExpressions:
      - key: kubernetes.io/arch
        operator: In
        values:
          {{- toYaml . | nindent 10 }}
{{- end -}}
{{- end -}}

{{- /* Who the daemons are: their account, and with certificates the group of these. Daemons that have none yet are still the account. */ -}}
{{- define "multus.subjects" -}}
{{- $certificate := .Values.perNodeCertificate | default dict -}}
{{- $enabled := include "multus.true" $certificate.enabled -}}
{{- if $enabled -}}
- apiGroup: rbac.authorization.k8s.io
  kind: Group
  name: system:multus
{{ end -}}
{{- if not (and $enabled (include "multus.true" $certificate.exclusive)) -}}
- kind: ServiceAccount
  name: {{ .Values.serviceAccount.name }}
  namespace: {{ .Release.Namespace }}
{{- end -}}
{{- end -}}

{{- /* A path on the node: what was meant for a container that saw the node below /host. */ -}}
{{- define "multus.nodePath" -}}
{{- regexReplaceAll "^/host(root)?(/|$)" (toString .) "/" -}}
{{- end -}}

{{- /* The port of the node where daemons serve metrics, or nothing. A number may have become a float on its way. */ -}}
{{- define "multus.metricsPort" -}}
{{- $metrics := .Values.metrics | default dict -}}
{{- $own := get (.Values.config.daemon_conf | default dict) "metricsPort" -}}
{{- if $own }}{{ int $own }}{{ else if include "multus.true" $metrics.enabled }}{{ int ($metrics.port | default 9091) }}{{ end -}}
{{- end -}}

{{- /* daemon-config.json: cni_conf in the daemon's words, then daemon_conf over it. */ -}}
{{- define "multus.daemonConfig" -}}
{{- $cni := .Values.config.cni_conf | default dict -}}
{{- $out := dict "cniVersion" "auto" "multusConfigFile" "auto" "logLevel" "verbose" "logToStderr" true -}}
{{- with include "multus.metricsPort" . }}{{ $_ := set $out "metricsPort" (int .) }}{{ end -}}
{{- $paths := dict "confDir" "cniConfigDir" "binDir" "binDir" "shimDir" "shimDir" "multusAutoconfigDir" "multusAutoconfigDir" "readinessIndicatorFile" "readinessindicatorfile" "multusCniConfDir" "confDir" -}}
{{- range $key, $name := $paths -}}
{{- with get $cni $key }}{{ $_ := set $out $name (include "multus.nodePath" .) }}{{ end -}}
{{- end -}}
{{- $words := dict "globalNamespaces" "globalNamespaces" "masterCniFilename" "multusMasterCNI" "logFile" "logFile" "logLevel" "logLevel" "cniVersion" "cniVersion" "multusConfFile" "multusConfigFile" -}}
{{- range $key, $name := $words -}}
{{- with get $cni $key }}{{ $_ := set $out $name . }}{{ end -}}
{{- end -}}
{{- range $key := list "namespaceIsolation" "overrideNetworkName" "logToStderr" -}}
{{- if and (hasKey $cni $key) (not (kindIs "invalid" (get $cni $key))) }}{{ $_ := set $out $key (eq (toString (get $cni $key)) "true") }}{{ end -}}
{{- end -}}
{{- $certificate := .Values.perNodeCertificate | default dict -}}
{{- if include "multus.true" $certificate.enabled -}}
{{- $keys := dict "enabled" true -}}
{{- range $key := list "bootstrapKubeconfig" "certDir" "certDuration" -}}
{{- with get $certificate $key }}{{ $_ := set $keys $key . }}{{ end -}}
{{- end -}}
{{- $_ := set $out "perNodeCertificate" $keys -}}
{{- end -}}
{{- if include "multus.true" (.Values.dynamicNetworksController | default dict).enabled }}{{ $_ := set $out "dynamicNetworks" true }}{{ end -}}
{{- if include "multus.true" .Values.manifests.dhcpDaemonSet }}{{ $_ := set $out "dhcp" true }}{{ end -}}
{{- range $key, $value := .Values.config.daemon_conf | default dict -}}
{{- if not (kindIs "invalid" $value) }}{{ $_ := set $out $key $value }}{{ end -}}
{{- end -}}
{{- toPrettyJson $out -}}
{{- end -}}

{{- /* Labels of an object. `root` is the context, `app` the label that selectors use, `component` the part of the release, `further` the
       labels of the object's own value. commonLabels may replace the recommended labels, but not those of selectors. */ -}}
{{- define "multus.labelsOf" -}}
{{- $recommended := dict
  "app.kubernetes.io/name" (.root.Values.nameOverride | default .root.Chart.Name)
  "app.kubernetes.io/instance" .root.Release.Name
  "app.kubernetes.io/component" .component
  "app.kubernetes.io/part-of" "multus"
  "app.kubernetes.io/version" (regexReplaceAll "[^-A-Za-z0-9_.]" (.root.Chart.AppVersion | default "0") "_" | trunc 63)
  "app.kubernetes.io/managed-by" .root.Release.Service
-}}
{{- $labels := dict "app" .app -}}
{{- if eq .component "daemon" }}{{ $_ := set $labels "tier" "node" }}{{ end -}}
{{- range $more := list (.further | default dict) (.root.Values.commonLabels | default dict) $recommended -}}
{{- range $key, $value := $more -}}
{{- if not (or (hasKey $labels $key) (kindIs "invalid" $value)) }}{{ $_ := set $labels $key $value }}{{ end -}}
{{- end -}}
{{- end -}}
{{- toYaml $labels -}}
{{- end -}}

{{- /* Labels of all objects but those of the approver and of the test. */ -}}
{{- define "multus.labels" -}}
{{- include "multus.labelsOf" (dict "root" . "app" .Chart.Name "component" "daemon") -}}
{{- end -}}

{{- /* "true" for the boolean and for the text, empty for anything else. */ -}}
{{- define "multus.true" -}}
{{- if eq (toString .) "true" }}true{{ end -}}
{{- end -}}

{{- /* "true" when the release installs plugins and no multiplexer. */ -}}
{{- define "multus.standalone" -}}
{{- include "multus.true" (.Values.cniplugins | default dict).standalone -}}
{{- end -}}

{{- /* "true" when daemons give addresses of the pools of whereabouts. */ -}}
{{- define "multus.whereabouts" -}}
{{- include "multus.true" (.Values.ipam | default dict).whereabouts | default (include "multus.true" (get .Values "rke2-whereabouts" | default dict).enabled) -}}
{{- end -}}

{{- /* "true" when daemons give addresses. */ -}}
{{- define "multus.addresses" -}}
{{- include "multus.true" (.Values.ipam | default dict).enabled | default (include "multus.whereabouts" .) -}}
{{- end -}}

{{- /* How daemons publish which networks their nodes can serve; empty when they do not. */ -}}
{{- define "multus.publish" -}}
{{- $publish := lower (toString (.Values.publish | default "none")) -}}
{{- if ne $publish "none" }}{{ $publish }}{{ end -}}
{{- end -}}

{{- /* The condition of a policy that is about daemons. */ -}}
{{- define "multus.isDaemon" -}}
- name: user-is-a-daemon
  expression: |-
    request.userInfo.username == 'system:serviceaccount:{{ .Release.Namespace }}:{{ .Values.serviceAccount.name }}' ||
    request.userInfo.username.startsWith('system:multus:')
{{- end -}}

{{- /* The variable of such a policy with the name of the daemon's node. */ -}}
{{- define "multus.nodeOfDaemon" -}}
# A certificate names the node as its user, a pod's token in a claim.
- name: node
  expression: |-
    request.userInfo.username.startsWith('system:multus:') ? request.userInfo.username.replace('system:multus:', '', 1) :
    request.userInfo.?extra[?'authentication.kubernetes.io/node-name'][?0].orValue('')
{{- end -}}

{{- /* "true" when the daemon only writes files: it starts no plugin. */ -}}
{{- define "multus.installsOnly" -}}
{{- if and (include "multus.standalone" .) (not (include "multus.true" .Values.manifests.dhcpDaemonSet)) }}true{{ end -}}
{{- end -}}

{{- /* A digest takes precedence over the tag, which stays for readers. */ -}}
{{- define "multus.image" -}}
{{- $image := .Values.image | default dict -}}
{{- $own := (.Values.thickPlugin | default dict).image | default dict -}}
{{- $global := .Values.global | default dict -}}
{{- $registry := $global.systemDefaultRegistry | default ($global.cattle | default dict).systemDefaultRegistry | default $image.registry -}}
{{- with $registry }}{{ trimSuffix "/" . }}/{{ end -}}
{{ $own.repository | default $image.repository }}
{{- with $own.tag | default $image.tag }}:{{ . }}{{ end -}}
{{- with $own.digest | default $image.digest }}@{{ . }}{{ end -}}
{{- end -}}

{{- define "multus.pullPolicy" -}}
{{- $own := (.Values.thickPlugin | default dict).image | default dict -}}
{{ $own.pullPolicy | default (.Values.image | default dict).pullPolicy | default "IfNotPresent" }}
{{- end -}}

{{- /* Capabilities of the daemon; some are required. */ -}}
{{- define "multus.capabilities" -}}
{{- /* `--reuse-values` of an earlier release has no such value. */ -}}
{{- $capabilities := (.Values.daemonSecurity | default dict).capabilities -}}
{{- if kindIs "invalid" $capabilities -}}
{{- $capabilities = list "CHOWN" "DAC_OVERRIDE" "FOWNER" "IPC_LOCK" "KILL" "MKNOD" "NET_ADMIN" "NET_BIND_SERVICE" "NET_RAW" "SETGID" "SETUID" "SYS_ADMIN" "SYS_CHROOT" "SYS_PTRACE" -}}
{{- end -}}
{{- range list "SYS_ADMIN" "SYS_CHROOT" "SYS_PTRACE" -}}
{{- if not (has . $capabilities) -}}
{{- fail (printf "daemonSecurity.capabilities lacks %s, which the daemon needs to enter the runtime's namespaces: add it, or leave the value out" .) -}}
{{- end -}}
{{- end -}}
{{- /* A directory of the runtime may belong to another user than root. */ -}}
{{- if include "multus.installsOnly" . }}{{ $capabilities = list "DAC_OVERRIDE" "SYS_PTRACE" }}{{ end -}}
{{- toYaml $capabilities -}}
{{- end -}}

{{- /* Affinity to the architectures of the image and to the nodes of the value: terms are alternatives, so the architectures are added to each. */ -}}
{{- define "multus.affinity" -}}
{{- $affinity := deepCopy (.Values.affinity | default dict) -}}
{{- with .Values.architectures -}}
{{- $supported := dict "key" "kubernetes.io/arch" "operator" "In" "values" . -}}
{{- $node := get $affinity "nodeAffinity" | default dict -}}
{{- $required := get $node "requiredDuringSchedulingIgnoredDuringExecution" | default dict -}}
{{- $terms := list -}}
{{- range get $required "nodeSelectorTerms" | default list -}}
{{- /* An empty term matches no node; with the architectures it would match some. */ -}}
{{- if . }}{{ $terms = append $terms (set . "matchExpressions" (append (get . "matchExpressions" | default list) $supported)) }}{{ else }}{{ $terms = append $terms . }}{{ end -}}
{{- end -}}
{{- $_ := set $required "nodeSelectorTerms" ($terms | default (list (dict "matchExpressions" (list $supported)))) -}}
{{- $_ := set $node "requiredDuringSchedulingIgnoredDuringExecution" $required -}}
{{- $_ := set $affinity "nodeAffinity" $node -}}
{{- end -}}
{{- if $affinity }}{{ toYaml $affinity }}{{ end -}}
{{- end -}}

{{- /* Labels of the nodes that get a pod, under the published name and under the usual one, which takes precedence. */ -}}
{{- define "multus.nodeSelector" -}}
{{- $selector := dict -}}
{{- range $more := list ((.Values.labels | default dict).nodeSelector | default dict) (.Values.nodeSelector | default dict) -}}
{{- range $key, $value := $more -}}
{{- if not (kindIs "invalid" $value) }}{{ $_ := set $selector $key $value }}{{ end -}}
{{- end -}}
{{- end -}}
{{- if $selector }}{{ toYaml $selector }}{{ end -}}
{{- end -}}

{{- /* Annotations of the daemons' pods. */ -}}
{{- define "multus.podAnnotations" -}}
{{- /* A node that the autoscaler empties needs its daemon until the last pod is deleted. */ -}}
{{- $annotations := dict "cluster-autoscaler.kubernetes.io/enable-ds-eviction" "false" -}}
{{- range $key, $value := .Values.podAnnotations | default dict -}}
{{- if not (kindIs "invalid" $value) }}{{ $_ := set $annotations $key $value }}{{ end -}}
{{- end -}}
{{- $_ := set $annotations "checksum/config" (include "multus.daemonConfig" . | sha256sum) -}}
{{- if semverCompare "<1.30-0" .Capabilities.KubeVersion.Version -}}
{{- $_ := set $annotations (printf "container.apparmor.security.beta.kubernetes.io/kube-%s" .Chart.Name) "unconfined" -}}
{{- end -}}
{{- toYaml $annotations -}}
{{- end -}}

{{- /* The update strategy. Kubernetes requires one of the two numbers to be 0; a number that is not set follows from the other one. */ -}}
{{- define "multus.updateStrategy" -}}
{{- $strategy := .Values.updateStrategy | default dict -}}
{{- $type := $strategy.type | default "RollingUpdate" -}}
{{- $rolling := $strategy.rollingUpdate | default dict -}}
{{- $surge := get $rolling "maxSurge" | toString -}}
{{- $unavailable := get $rolling "maxUnavailable" | toString -}}
{{- $unset := list "" "<nil>" -}}
{{- $none := list "0" "0%" -}}
{{- if not (has $type (list "RollingUpdate" "OnDelete")) -}}
{{- fail (printf "updateStrategy.type is %s, but must be RollingUpdate or OnDelete: correct it, or remove the value" $type) -}}
{{- end -}}
type: {{ $type }}
{{- if eq $type "RollingUpdate" -}}
{{- if has $surge $unset }}{{ $surge = ternary "1" "0" (or (has $unavailable $unset) (has $unavailable $none)) }}{{ end -}}
{{- if has $unavailable $unset }}{{ $unavailable = ternary "1" "0" (has $surge $none) }}{{ end -}}
{{- if eq (has $surge $none) (has $unavailable $none) -}}
{{- fail (printf "updateStrategy.rollingUpdate has maxSurge %s and maxUnavailable %s, but Kubernetes requires one of them to be 0 and the other not: correct them, or remove one" $surge $unavailable) -}}
{{- end }}
# With maxSurge the new daemon takes over the socket before the old one ends.
rollingUpdate:
  maxSurge: {{ $surge }}
  maxUnavailable: {{ $unavailable }}
{{- end -}}
{{- end -}}

{{- /* Subjects of the daemons: their service account, and with certificates the certificates' group. A daemon without a certificate yet uses the account. */ -}}
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

{{- /* A path of the node; values for upstream's container have it below /host or /hostroot. */ -}}
{{- define "multus.nodePath" -}}
{{- regexReplaceAll "^/host(root)?(/|$)" (toString .) "/" -}}
{{- end -}}

{{- /* The port of the node where daemons serve metrics, or empty. Helm may have turned the integer into a float. */ -}}
{{- define "multus.metricsPort" -}}
{{- $metrics := .Values.metrics | default dict -}}
{{- $own := get (.Values.config.daemon_conf | default dict) "metricsPort" -}}
{{- if $own }}{{ int $own }}{{ else if include "multus.true" $metrics.enabled }}{{ int ($metrics.port | default 9091) }}{{ end -}}
{{- end -}}

{{- /* daemon-config.json: cni_conf under the daemon's option names, then daemon_conf over it. */ -}}
{{- define "multus.daemonConfig" -}}
{{- $cni := .Values.config.cni_conf | default dict -}}
{{- $out := dict "cniVersion" "auto" "multusConfigFile" "auto" "logLevel" "verbose" "logToStderr" true -}}
{{- with include "multus.metricsPort" . }}{{ $_ := set $out "metricsPort" (int .) }}{{ end -}}
{{- $paths := dict "confDir" "cniConfigDir" "binDir" "binDir" "shimDir" "shimDir" "multusAutoconfigDir" "multusAutoconfigDir" "readinessIndicatorFile" "readinessindicatorfile" "multusCniConfDir" "confDir" -}}
{{- range $key, $name := $paths -}}
{{- with get $cni $key }}{{ $_ := set $out $name (include "multus.nodePath" .) }}{{ end -}}
{{- end -}}
{{- $others := dict "globalNamespaces" "globalNamespaces" "masterCniFilename" "multusMasterCNI" "logFile" "logFile" "logLevel" "logLevel" "cniVersion" "cniVersion" "multusConfFile" "multusConfigFile" -}}
{{- range $key, $name := $others -}}
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
{{- $plugins := dict -}}
{{- with .Values.cniplugins -}}
{{- if and (hasKey . "install") (not (kindIs "invalid" .install)) (not (include "multus.true" .install)) }}{{ $_ := set $plugins "install" false }}{{ end -}}
{{- with .only }}{{ $_ := set $plugins "only" . }}{{ end -}}
{{- with .skipcnis }}{{ $_ := set $plugins "skip" (regexSplit "[, ]+" (trimAll ", " (toString .)) -1) }}{{ end -}}
{{- if include "multus.true" .first }}{{ $_ := set $plugins "first" true }}{{ end -}}
{{- end -}}
{{- if $plugins }}{{ $_ := set $out "ownPlugins" $plugins }}{{ end -}}
{{- if include "multus.true" (.Values.dynamicNetworksController | default dict).enabled }}{{ $_ := set $out "dynamicNetworks" true }}{{ end -}}
{{- if include "multus.true" .Values.manifests.dhcpDaemonSet }}{{ $_ := set $out "dhcp" true }}{{ end -}}
{{- if include "multus.addresses" . }}{{ $_ := set $out "ipam" true }}{{ end -}}
{{- if include "multus.whereabouts" . }}{{ $_ := set $out "whereabouts" ((.Values.ipam | default dict).whereaboutsNamespace | default "kube-system") }}{{ end -}}
{{- with include "multus.publish" . }}{{ $_ := set $out "publish" . }}{{ end -}}
{{- range $key, $value := .Values.config.daemon_conf | default dict -}}
{{- if not (kindIs "invalid" $value) }}{{ $_ := set $out $key $value }}{{ end -}}
{{- end -}}
{{- toPrettyJson $out -}}
{{- end -}}

#!/bin/sh
# The entry point of a HelmChart's job: runs Helm as environment, arguments and mounted files say. The first argument is the verb.
set -eu
export HELM_CACHE_HOME=/tmp/cache HELM_CONFIG_HOME=/tmp/config HELM_DATA_HOME=/tmp/data
export SSL_CERT_FILE=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt
verb=$1
shift
if [ "$verb" = delete ]; then
  exec helm uninstall "$NAME" --namespace "$TARGET_NAMESPACE" --ignore-not-found
fi
chart=$(echo "$CHART" | busybox sed "s|%{KUBERNETES_API}%|$(cat /static-server)|")
if [ -e "/chart/$NAME.tgz.base64" ]; then
  chart=/tmp/$NAME.tgz
  busybox base64 -d "/chart/$NAME.tgz.base64" >"$chart"
fi
for file in /config/values-*.yaml; do
  if [ -e "$file" ]; then set -- "$@" "--values=$file"; fi
done
exec helm upgrade --install --reset-values "$NAME" "$chart" "$@" \
  "--labels=helmcharts.helm.cattle.io/configHash=$CONFIG_HASH"

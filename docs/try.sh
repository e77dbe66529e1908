#!/usr/bin/env bash
# Tries a release: Multus and a pod with an additional network, on K3s on this machine or in a cluster that is there already.
#
#   docs/try.sh k3s       installs K3s on this machine, as root, with Multus from its first start
#   docs/try.sh cluster   installs Multus in the cluster that kubectl uses
#   docs/try.sh remove    removes everything that the other two made
#
# Nothing is left behind when it fails or is interrupted, and nothing is changed where Multus, or on this machine Kubernetes, is already.
#
#   DIST=DIR         the release, unless it is in dist/ of the checkout
#   REGISTRY=NAME    of `cluster`: where the image was pushed to, as in registry.example:5000/team; docker.io unless set
#   MULTUS_K3S=DIR   of `k3s`: a directory with k3s, install.sh and k3s-airgap-images-ARCH.tar* of a release of K3s; the newest is
#                    downloaded from get.k3s.io unless set
set -Eeuo pipefail
trap 'echo "try.sh: line $LINENO failed: $BASH_COMMAND" >&2' ERR

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
dist=${DIST:-$checkout/dist}
# What this script knows of the K3s that it installed: its process, its logs, and settings that were there before.
state=/var/lib/rancher/multus-try
namespace=multus-try
crd=crd/network-attachment-definitions.k8s.cni.cncf.io
manifest=$dist/manifests/kubernetes/multus.yaml

main() {
  case ${1:-} in
  k3s) try k3s ;;
  cluster) try cluster ;;
  remove) remove ;;
  *)
    sed -n '/^#   /s/^# //p' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
  esac
}

# Installs Multus, starts the pod, and shows what it got; undoes all of it on a failure.
try() {
  local where=$1 as=
  [ "$where" = cluster ] || as="sudo "
  need_release
  "check_$where"
  trap "undo \$? $where" EXIT
  trap 'exit 130' INT TERM
  "install_$where"
  start_pod
  trap - EXIT
  echo
  kubectl-multus status --namespace "$namespace" cart
  echo
  echo "To remove everything: ${as}docs/try.sh remove"
}

undo() {
  trap - EXIT INT TERM
  [ "$1" = 0 ] || {
    explain >&2 || true
    echo "try.sh: it failed; what was installed is removed again" >&2
    "remove_$2" >&2
  }
  exit "$1"
}

# Says what the cluster knows about a failure.
explain() {
  if ! reaches_cluster; then
    if [ -s "$state/k3s.log" ]; then
      grep -E 'level=(error|fatal)' "$state/k3s.log" | tail -n 3
    elif [ -e "$state/install.log" ]; then
      tail -n 3 "$state/install.log"
    fi
    return
  fi
  kubectl get pods --namespace kube-system --selector app.kubernetes.io/part-of=multus
  ! kubectl get pods --all-namespaces | grep -E 'ErrImage|ImagePull' ||
    echo "try.sh: the nodes do not get an image: docs/airgap.md brings it to them, or name the registry that has it with REGISTRY"
  ! exists pod/cart --namespace "$namespace" || kubectl-multus why --namespace "$namespace" cart
}

remove() {
  need_release
  if [ -d "$state" ]; then
    remove_k3s
  elif is_installed_in_cluster; then
    remove_cluster
  else
    say "nothing to remove: no K3s of this script, and no namespace $namespace in a cluster that kubectl reaches"
  fi
}

# ---- K3s on this machine

check_k3s() {
  [ "$(id -u)" = 0 ] || fail "K3s is installed as root: use sudo, or \`docs/try.sh cluster\` with a cluster that is there already"
  if [ -d "$state" ]; then
    runs_k3s || fail "the K3s of an earlier try has ended: \`docs/try.sh remove\` first"
    use_k3s
    return
  fi
  local found
  found=$(command -v k3s rke2 kubelet || true)
  for found in $found /etc/systemd/system/k3s*.service /var/lib/rancher/*/server /var/lib/kubelet/* /var/lib/cni/*; do
    [ ! -e "$found" ] || fail "this machine has Kubernetes already ($found), which removing K3s would damage: use \`docs/try.sh cluster\`"
  done
  [ -n "${MULTUS_K3S:-}" ] || need curl "or download K3s elsewhere and set MULTUS_K3S"
}

install_k3s() {
  if [ ! -d "$state" ]; then
    mkdir -p "$state"
    if [ -d /etc/rancher/k3s ]; then
      cp -a /etc/rancher/k3s "$state/settings.part"
      mv "$state/settings.part" "$state/settings"
    fi
    place_k3s >"$state/install.log" 2>&1
    say "K3s is installed"
    # Not by its unit, so that the trial is the same where no systemd runs.
    touch "$state/k3s.log"
    setsid "$bin/multus-distro" run --multus -- /usr/local/bin/k3s server --disable=traefik,servicelb,metrics-server,local-storage \
      >>"$state/k3s.log" 2>&1 </dev/null &
    echo $! >"$state/pid"
  fi
  use_k3s
  timeout --foreground 180 grep --quiet --max-count=1 'k3s is up and running' <(tail --pid="$(<"$state/pid")" --lines=+1 --follow "$state/k3s.log") ||
    fail "K3s does not start"
  say "K3s runs"
  wait_for create "$crd"
  wait_for condition=Established "$crd"
  wait_for create daemonset/k3s-multus --namespace kube-system
  rollout k3s-multus
}

# Installs K3s' program, and puts the images of this release where it looks for images.
place_k3s() {
  local images=/var/lib/rancher/k3s/agent/images installer=$state/install.sh
  mkdir -p "$images"
  if [ -n "${MULTUS_K3S:-}" ]; then
    cp "$MULTUS_K3S/install.sh" "$installer"
    install -m 755 "$MULTUS_K3S/k3s" /usr/local/bin/k3s
    cp "$MULTUS_K3S/k3s-airgap-images-$arch".tar* "$images/"
    export INSTALL_K3S_SKIP_DOWNLOAD=true
  else
    curl --silent --show-error --fail --location --output "$installer" https://get.k3s.io
  fi
  INSTALL_K3S_SKIP_ENABLE=true INSTALL_K3S_SKIP_START=true sh "$installer" server
  "$bin/multus-distro" images install "$dist/airgap"
}

remove_k3s() {
  if runs_k3s; then
    use_k3s
    ! reaches_cluster || kubectl delete pod --all --namespace "$namespace" --timeout=60s >/dev/null || true
    kill "$(<"$state/pid")"
    timeout --foreground 60 tail --pid="$(<"$state/pid")" --follow /dev/null || kill -KILL "$(<"$state/pid")"
  fi
  [ ! -e /usr/local/bin/k3s-uninstall.sh ] || /usr/local/bin/k3s-uninstall.sh >"$state/uninstall.log" 2>&1 || {
    tail -n 5 "$state/uninstall.log" >&2
    fail "K3s cannot be uninstalled: $state/uninstall.log"
  }
  rm -rf /var/lib/rancher/k3s /usr/local/bin/k3s
  find /usr/local/bin -maxdepth 1 -lname k3s -delete
  # The daemon ended with K3s and left its files.
  [ ! -e /var/lib/multus/installed.json ] || "$bin/multus-distro" uninstall >>"$state/uninstall.log"
  # K3s' script leaves these; no other Kubernetes was here.
  rm -rf /run/multus-distro /etc/rancher/node /var/log/pods/* /var/log/containers/*
  if [ -d "$state/settings" ]; then
    rm -rf /etc/rancher/k3s
    cp -a "$state/settings" /etc/rancher/k3s
  fi
  rm -rf "$state"
  rmdir /var/lib/rancher /etc/rancher 2>/dev/null || true
  say "K3s and Multus are removed"
}

# A process that has the number after a reboot is another one.
runs_k3s() { [ -s "$state/pid" ] && grep --quiet --null-data --fixed-strings k3s "/proc/$(<"$state/pid")/cmdline" 2>/dev/null; }

use_k3s() {
  export KUBECONFIG=/etc/rancher/k3s/k3s.yaml
  kubectl() { /usr/local/bin/k3s kubectl "$@"; }
}

# ---- a cluster that is there already

check_cluster() {
  need kubectl "of your cluster's version"
  reaches_cluster || fail "kubectl reaches no cluster: set KUBECONFIG, or use \`docs/try.sh k3s\`"
  is_installed_in_cluster || ! exists "$crd" ||
    fail "this cluster has Multus, or its resource definition, already: \`kubectl multus preflight\` says what an installation would change"
}

install_cluster() {
  # The namespace comes first: its label says that the installation is this script's.
  make_namespace
  kubectl label --overwrite namespace "$namespace" multus-try=cluster >/dev/null
  sed "s#image: \"#&${REGISTRY:+$REGISTRY/}#" "$manifest" | apply
  wait_for condition=Established "$crd"
  rollout rke2-multus
}

is_installed_in_cluster() {
  local found
  found=$(kubectl get namespaces --selector multus-try=cluster --output name 2>/dev/null) && [ -n "$found" ]
}

remove_cluster() {
  kubectl delete pod --all --namespace "$namespace" --timeout=60s >/dev/null
  if exists "$crd"; then
    kubectl delete network-attachment-definitions --all --namespace "$namespace" >/dev/null
    if [ -n "$(kubectl get network-attachment-definitions --all-namespaces --output name)" ]; then
      say "the resource definition stays, since there are networks that this script did not make"
    else
      kubectl delete "$crd" >/dev/null
    fi
  fi
  # What belongs to the chart goes; the resource definition is no part of it.
  kubectl delete --filename "$manifest" --selector app.kubernetes.io/name=rke2-multus --ignore-not-found --timeout=60s >/dev/null
  kubectl delete namespace "$namespace" --timeout=60s >/dev/null
  say "Multus is removed"
}

# ---- both

start_pod() {
  make_namespace
  # A `ptp` link needs no link or LAN of the node, and ends with the pod.
  apply <<END
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: second, namespace: $namespace}
spec:
  config: |
    {
      "cniVersion": "1.0.0", "type": "ptp",
      "ipam": {"type": "static", "addresses": [{"address": "10.60.0.2/24", "gateway": "10.60.0.1"}]}
    }
---
apiVersion: v1
kind: Pod
metadata:
  name: cart
  namespace: $namespace
  annotations: {k8s.v1.cni.cncf.io/networks: second}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: shell, image: "busybox:1.37", command: [sleep, "2147483647"]}
END
  wait_for condition=Ready pod/cart --namespace "$namespace"
  say "a pod has an additional network"
}

make_namespace() {
  apply <<<"{\"apiVersion\": \"v1\", \"kind\": \"Namespace\", \"metadata\": {\"name\": \"$namespace\"}}"
}

need_release() {
  case $(uname -m) in
  x86_64) arch=amd64 ;;
  aarch64) arch=arm64 ;;
  armv7l) arch=arm ;;
  *) fail "there are releases for amd64, arm64 and arm (v7), not for $(uname -m)" ;;
  esac
  bin=$dist/bin/$arch
  for file in "$manifest" "$bin/multus-distro" "$bin/kubectl-multus" "$dist/airgap/multus-airgap-images-$arch.tar"; do
    [ -e "$file" ] || fail "there is no $file: build the release with \`cargo xtask dist --install --arch $arch\`, or name another with DIST"
  done
  PATH=$bin:$PATH
}

rollout() {
  kubectl rollout status "daemonset/$1" --namespace kube-system --timeout=180s >/dev/null
  say "Multus is ready on every node"
}

need() { command -v "$1" >/dev/null || fail "there is no $1: install it, $2"; }
reaches_cluster() { kubectl get --raw /readyz >/dev/null 2>&1; }
exists() { kubectl get "$@" >/dev/null 2>&1; }
apply() { kubectl apply --server-side --filename - >/dev/null; }
wait_for() { kubectl wait "--for=$1" "${@:2}" --timeout=180s >/dev/null; }
say() { printf '%3d s  %s\n' "$SECONDS" "$*"; }
fail() {
  echo "try.sh: $*" >&2
  exit 1
}

main "$@"

#!/bin/sh
# A CNI plugin for suite `load`: records each call with its soft limit of open files, waits at a gate that the test has closed, and
# reports one interface with one address. Both networks of a pod run it, under different names.
read -r config || :
kind=${0##*/}
record() {
    echo "$1 $kind $CNI_COMMAND $CNI_CONTAINERID $(ulimit -Sn)" >>/run/load/calls
}
record begin
# Opening a named pipe for reading blocks until the test opens it for writing.
if [ -p "/run/load/$kind.$CNI_COMMAND" ]; then
    : <"/run/load/$kind.$CNI_COMMAND"
fi
if [ -e "/run/load/$kind.$CNI_COMMAND.slow" ]; then
    sleep 2
fi
case $CNI_COMMAND in
VERSION)
    echo '{"cniVersion": "1.1.0", "supportedVersions": ["0.4.0", "1.0.0", "1.1.0"]}'
    ;;
ADD)
    echo '{"cniVersion": "1.0.0", "interfaces": [{"name": "'"$CNI_IFNAME"'", "sandbox": "'"$CNI_NETNS"'", "mac": "02:00:00:00:00:01"}],
        "ips": [{"address": "10.66.0.2/24", "interface": 0}]}'
    ;;
esac
record end

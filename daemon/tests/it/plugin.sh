#!/bin/sh
# A plugin that records its environment and stdin, and prints the prepared answer.
here='@HERE@'
me="${0##*/}"
gate="$here/gates/$me.$CNI_COMMAND"
blocked=
if [ -p "$gate" ]; then
    exec 3<"$gate"
    blocked=yes
fi
{ env; echo "OPEN_FILES=$(ulimit -S -n)"; } >"$here/calls/$$.env"
cat >"$here/calls/$$.stdin"
echo "$CNI_COMMAND $me ${CNI_IFNAME:--} $$" >>"$here/order"
# This line comes after opening the gate: a test that sees it knows that the plugin is blocked.
if [ -n "$blocked" ]; then
    read -r _ <&3
fi
answer="$here/answers/$me.$CNI_COMMAND"
if [ -f "$answer.error" ]; then
    cat "$answer.error"
    exit 1
fi
if [ -f "$answer" ]; then
    sed "s/@IFNAME@/$CNI_IFNAME/" "$answer"
fi

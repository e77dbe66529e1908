#!/bin/sh
# A plugin that writes down how it was called and answers what lies ready for it.
here='@HERE@'
me="${0##*/}"
gate="$here/gates/$me.$CNI_COMMAND"
held=
if [ -p "$gate" ]; then
    exec 3<"$gate"
    held=yes
fi
{ env; echo "OPEN_FILES=$(ulimit -S -n)"; } >"$here/calls/$$.env"
cat >"$here/calls/$$.stdin"
echo "$CNI_COMMAND $me ${CNI_IFNAME:--} $$" >>"$here/order"
# Whoever sees the line above knows that the gate is open for reading.
if [ -n "$held" ]; then
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

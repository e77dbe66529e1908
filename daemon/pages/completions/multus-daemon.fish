# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_multus_daemon_global_optspecs
    string join \n config= root= log-format= v/version h/help
end

function __fish_multus_daemon_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_multus_daemon_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_multus_daemon_using_subcommand
    set -l cmd (__fish_multus_daemon_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c multus-daemon -n "__fish_multus_daemon_needs_command" -l config -d 'The daemon\'s configuration file' -r -F
complete -c multus-daemon -n "__fish_multus_daemon_needs_command" -l root -d 'The directory that is the node\'s root; by default /hostroot, or / where that does not exist outside a pod' -r -F
complete -c multus-daemon -n "__fish_multus_daemon_needs_command" -l log-format -d 'The format of log lines' -r -f -a "text\t''
json\t''"
complete -c multus-daemon -n "__fish_multus_daemon_needs_command" -s v -l version -d 'Print the version'
complete -c multus-daemon -n "__fish_multus_daemon_needs_command" -s h -l help -d 'Print help'
complete -c multus-daemon -n "__fish_multus_daemon_needs_command" -f -a "run" -d 'Serve (the default)'
complete -c multus-daemon -n "__fish_multus_daemon_needs_command" -f -a "plugins" -d 'Install the CNI plugins into the runtime\'s directory and keep them there; serve no pods'
complete -c multus-daemon -n "__fish_multus_daemon_needs_command" -f -a "install" -d 'Install the shim into a directory, also as passthru'
complete -c multus-daemon -n "__fish_multus_daemon_needs_command" -f -a "uninstall" -d 'Remove configuration, shim and plugins from this node'
complete -c multus-daemon -n "__fish_multus_daemon_needs_command" -f -a "discover" -d 'Show where this node\'s runtime has its CNI directories'
complete -c multus-daemon -n "__fish_multus_daemon_needs_command" -f -a "approve" -d 'Approve certificates that nodes request for themselves, deny all others of that kind'
complete -c multus-daemon -n "__fish_multus_daemon_needs_command" -f -a "pod" -d 'Show what this node knows about a pod\'s networks, as JSON: for kubectl multus'
complete -c multus-daemon -n "__fish_multus_daemon_needs_command" -f -a "verify" -d 'Verify that the DaemonSet serves every node and gave this pod its networks: for helm test'
complete -c multus-daemon -n "__fish_multus_daemon_needs_command" -f -a "status" -d 'Query the running daemon'
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand run" -l config -d 'The daemon\'s configuration file' -r -F
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand run" -l root -d 'The directory that is the node\'s root; by default /hostroot, or / where that does not exist outside a pod' -r -F
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand run" -l log-format -d 'The format of log lines' -r -f -a "text\t''
json\t''"
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand run" -s h -l help -d 'Print help'
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand plugins" -l config -d 'The daemon\'s configuration file' -r -F
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand plugins" -l root -d 'The directory that is the node\'s root; by default /hostroot, or / where that does not exist outside a pod' -r -F
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand plugins" -l log-format -d 'The format of log lines' -r -f -a "text\t''
json\t''"
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand plugins" -s h -l help -d 'Print help'
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand install" -s d -l dest-dir -d 'The directory' -r -F
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand install" -s t -l type -d 'Upstream\'s flag; only thick exists' -r -f -a "thick\t''"
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand install" -l config -d 'The daemon\'s configuration file' -r -F
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand install" -l root -d 'The directory that is the node\'s root; by default /hostroot, or / where that does not exist outside a pod' -r -F
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand install" -l log-format -d 'The format of log lines' -r -f -a "text\t''
json\t''"
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand install" -s h -l help -d 'Print help'
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand uninstall" -l config -d 'The daemon\'s configuration file' -r -F
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand uninstall" -l root -d 'The directory that is the node\'s root; by default /hostroot, or / where that does not exist outside a pod' -r -F
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand uninstall" -l log-format -d 'The format of log lines' -r -f -a "text\t''
json\t''"
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand uninstall" -l detach -d 'First detach deleted pods, leave the runtime what it needs to detach the default network of running pods, and list their other networks, which stay attached'
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand uninstall" -s h -l help -d 'Print help'
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand discover" -l config -d 'The daemon\'s configuration file' -r -F
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand discover" -l root -d 'The directory that is the node\'s root; by default /hostroot, or / where that does not exist outside a pod' -r -F
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand discover" -l log-format -d 'The format of log lines' -r -f -a "text\t''
json\t''"
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand discover" -l json -d 'Print JSON'
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand discover" -s h -l help -d 'Print help'
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand approve" -l service-account -d 'Also let pods of this service account, namespace/name, request the certificate of their node' -r
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand approve" -l config -d 'The daemon\'s configuration file' -r -F
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand approve" -l root -d 'The directory that is the node\'s root; by default /hostroot, or / where that does not exist outside a pod' -r -F
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand approve" -l log-format -d 'The format of log lines' -r -f -a "text\t''
json\t''"
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand approve" -s h -l help -d 'Print help'
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand pod" -l config -d 'The daemon\'s configuration file' -r -F
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand pod" -l root -d 'The directory that is the node\'s root; by default /hostroot, or / where that does not exist outside a pod' -r -F
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand pod" -l log-format -d 'The format of log lines' -r -f -a "text\t''
json\t''"
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand pod" -s h -l help -d 'Print help'
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand verify" -l wait -d 'Retry for this many seconds before failing' -r
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand verify" -l config -d 'The daemon\'s configuration file' -r -F
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand verify" -l root -d 'The directory that is the node\'s root; by default /hostroot, or / where that does not exist outside a pod' -r -F
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand verify" -l log-format -d 'The format of log lines' -r -f -a "text\t''
json\t''"
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand verify" -l plugins -d 'Only verify the DaemonSet: it installs plugins and serves no pods'
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand verify" -s h -l help -d 'Print help'
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand status" -l wait -d 'Retry for this many seconds before failing' -r
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand status" -l config -d 'The daemon\'s configuration file' -r -F
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand status" -l root -d 'The directory that is the node\'s root; by default /hostroot, or / where that does not exist outside a pod' -r -F
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand status" -l log-format -d 'The format of log lines' -r -f -a "text\t''
json\t''"
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand status" -l ready -d 'Succeed only when pods are served'
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand status" -l json -d 'Print its state and counters as JSON'
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand status" -s h -l help -d 'Print help'

# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_multus_daemon_global_optspecs
    string join \n config= root= log-format= V/version h/help
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
complete -c multus-daemon -n "__fish_multus_daemon_needs_command" -s V -s v -l version -d 'Print the version'
complete -c multus-daemon -n "__fish_multus_daemon_needs_command" -s h -l help -d 'Print help'
complete -c multus-daemon -n "__fish_multus_daemon_needs_command" -f -a "run" -d 'Serve (the default)'
complete -c multus-daemon -n "__fish_multus_daemon_needs_command" -f -a "uninstall" -d 'Remove configuration, shim and plugins from this node'
complete -c multus-daemon -n "__fish_multus_daemon_needs_command" -f -a "doctor" -d 'Report what is wrong on this node, and how to fix it'
complete -c multus-daemon -n "__fish_multus_daemon_needs_command" -f -a "networks" -d 'Show which network definitions this node can serve, and what it lacks for the others'
complete -c multus-daemon -n "__fish_multus_daemon_needs_command" -f -a "status" -d 'Query the running daemon'
complete -c multus-daemon -n "__fish_multus_daemon_needs_command" -f -a "version" -d 'Print the version, with the commit and date of the release'
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand run" -l config -d 'The daemon\'s configuration file' -r -F
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand run" -l root -d 'The directory that is the node\'s root; by default /hostroot, or / where that does not exist outside a pod' -r -F
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand run" -l log-format -d 'The format of log lines' -r -f -a "text\t''
json\t''"
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand run" -s h -l help -d 'Print help'
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand uninstall" -l config -d 'The daemon\'s configuration file' -r -F
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand uninstall" -l root -d 'The directory that is the node\'s root; by default /hostroot, or / where that does not exist outside a pod' -r -F
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand uninstall" -l log-format -d 'The format of log lines' -r -f -a "text\t''
json\t''"
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand uninstall" -l detach -d 'First detach deleted pods, leave the runtime what it needs to detach the default network of running pods, and list their other networks, which stay attached'
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand uninstall" -s h -l help -d 'Print help'
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand doctor" -l config -d 'The daemon\'s configuration file' -r -F
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand doctor" -l root -d 'The directory that is the node\'s root; by default /hostroot, or / where that does not exist outside a pod' -r -F
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand doctor" -l log-format -d 'The format of log lines' -r -f -a "text\t''
json\t''"
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand doctor" -l json -d 'Print JSON'
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand doctor" -l all -d 'Also every source that names a directory, and what was rejected'
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand doctor" -s h -l help -d 'Print help'
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand networks" -l config -d 'The daemon\'s configuration file' -r -F
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand networks" -l root -d 'The directory that is the node\'s root; by default /hostroot, or / where that does not exist outside a pod' -r -F
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand networks" -l log-format -d 'The format of log lines' -r -f -a "text\t''
json\t''"
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand networks" -l json -d 'Print JSON'
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand networks" -s h -l help -d 'Print help'
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand status" -l wait -d 'Retry for this many seconds before failing' -r
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand status" -l config -d 'The daemon\'s configuration file' -r -F
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand status" -l root -d 'The directory that is the node\'s root; by default /hostroot, or / where that does not exist outside a pod' -r -F
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand status" -l log-format -d 'The format of log lines' -r -f -a "text\t''
json\t''"
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand status" -l ready -d 'Succeed only when pods are served'
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand status" -l json -d 'Print its state and counters as JSON'
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand status" -s h -l help -d 'Print help'
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand version" -l config -d 'The daemon\'s configuration file' -r -F
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand version" -l root -d 'The directory that is the node\'s root; by default /hostroot, or / where that does not exist outside a pod' -r -F
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand version" -l log-format -d 'The format of log lines' -r -f -a "text\t''
json\t''"
complete -c multus-daemon -n "__fish_multus_daemon_using_subcommand version" -s h -l help -d 'Print help'

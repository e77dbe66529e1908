# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_kubectl_multus_global_optspecs
    string join \n kubeconfig= context= n/namespace= o/output= V/version h/help
end

function __fish_kubectl_multus_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_kubectl_multus_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_kubectl_multus_using_subcommand
    set -l cmd (__fish_kubectl_multus_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c kubectl-multus -n "__fish_kubectl_multus_needs_command" -l kubeconfig -d 'Path of the kubeconfig [default: KUBECONFIG, then ~/.kube/config]' -r -F
complete -c kubectl-multus -n "__fish_kubectl_multus_needs_command" -l context -d 'Context of the kubeconfig [default: the current one]' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_needs_command" -s n -l namespace -d 'Namespace [default: that of the context]' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_needs_command" -s o -l output -d 'Output format' -r -f -a "text\t''
json\t''"
complete -c kubectl-multus -n "__fish_kubectl_multus_needs_command" -s V -s v -l version -d 'Print the version'
complete -c kubectl-multus -n "__fish_kubectl_multus_needs_command" -s h -l help -d 'Print help'
complete -c kubectl-multus -n "__fish_kubectl_multus_needs_command" -f -a "status" -d 'Show the networks that a pod has, or the additional networks of all pods'
complete -c kubectl-multus -n "__fish_kubectl_multus_needs_command" -f -a "why" -d 'Diagnose what keeps a pod from its networks, and say what helps'
complete -c kubectl-multus -n "__fish_kubectl_multus_needs_command" -f -a "lint" -d 'Validate network definitions and pods with the daemon\'s own rules, before they are applied'
complete -c kubectl-multus -n "__fish_kubectl_multus_needs_command" -f -a "networks" -d 'Show which nodes can serve which networks, and what the others lack'
complete -c kubectl-multus -n "__fish_kubectl_multus_needs_command" -f -a "ipam" -d 'Show the addresses of ranges that all nodes share, and who has them'
complete -c kubectl-multus -n "__fish_kubectl_multus_needs_command" -f -a "preflight" -d 'Report what would fail or change when this release is installed'
complete -c kubectl-multus -n "__fish_kubectl_multus_needs_command" -f -a "report" -d 'Report the networks of nodes and pods, and what is wrong with them, also as one HTML file'
complete -c kubectl-multus -n "__fish_kubectl_multus_needs_command" -f -a "version" -d 'Print the version, with the commit and date of the release'
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand status" -l daemon-namespace -d 'Namespace of the daemons\' pods [default: all namespaces are searched]' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand status" -l kubeconfig -d 'Path of the kubeconfig [default: KUBECONFIG, then ~/.kube/config]' -r -F
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand status" -l context -d 'Context of the kubeconfig [default: the current one]' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand status" -s n -l namespace -d 'Namespace [default: that of the context]' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand status" -s o -l output -d 'Output format' -r -f -a "text\t''
json\t''"
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand status" -s A -l all-namespaces -d 'Pods of all namespaces'
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand status" -s h -l help -d 'Print help'
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand why" -l daemon-namespace -d 'Namespace of the daemons\' pods [default: all namespaces are searched]' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand why" -l kubeconfig -d 'Path of the kubeconfig [default: KUBECONFIG, then ~/.kube/config]' -r -F
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand why" -l context -d 'Context of the kubeconfig [default: the current one]' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand why" -s n -l namespace -d 'Namespace [default: that of the context]' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand why" -s o -l output -d 'Output format' -r -f -a "text\t''
json\t''"
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand why" -s h -l help -d 'Print help'
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand lint" -l daemon-config -d 'Configuration file of the daemon (daemon-config.json of its ConfigMap) [default: the daemon\'s default options]' -r -F
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand lint" -l kubeconfig -d 'Path of the kubeconfig [default: KUBECONFIG, then ~/.kube/config]' -r -F
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand lint" -l context -d 'Context of the kubeconfig [default: the current one]' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand lint" -s n -l namespace -d 'Namespace [default: that of the context]' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand lint" -s o -l output -d 'Output format' -r -f -a "text\t''
json\t''"
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand lint" -l cluster -d 'Read networks that are not among the files from the cluster, the pods that share their addresses, and which nodes serve them'
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand lint" -l strict -d 'Also fail on warnings'
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand lint" -s h -l help -d 'Print help'
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand networks" -l node -d 'Only this node' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand networks" -l daemon-namespace -d 'Namespace of the daemons\' pods [default: all namespaces are searched]' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand networks" -l kubeconfig -d 'Path of the kubeconfig [default: KUBECONFIG, then ~/.kube/config]' -r -F
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand networks" -l context -d 'Context of the kubeconfig [default: the current one]' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand networks" -s n -l namespace -d 'Namespace [default: that of the context]' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand networks" -s o -l output -d 'Output format' -r -f -a "text\t''
json\t''"
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand networks" -s h -l help -d 'Print help'
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and not __fish_seen_subcommand_from who check free adopt return" -l kubeconfig -d 'Path of the kubeconfig [default: KUBECONFIG, then ~/.kube/config]' -r -F
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and not __fish_seen_subcommand_from who check free adopt return" -l context -d 'Context of the kubeconfig [default: the current one]' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and not __fish_seen_subcommand_from who check free adopt return" -s n -l namespace -d 'Namespace [default: that of the context]' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and not __fish_seen_subcommand_from who check free adopt return" -s o -l output -d 'Output format' -r -f -a "text\t''
json\t''"
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and not __fish_seen_subcommand_from who check free adopt return" -s h -l help -d 'Print help'
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and not __fish_seen_subcommand_from who check free adopt return" -f -a "who" -d 'Show which pod has an address'
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and not __fish_seen_subcommand_from who check free adopt return" -f -a "check" -d 'Compare blocks, definitions, claims and the network status of all pods'
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and not __fish_seen_subcommand_from who check free adopt return" -f -a "free" -d 'Free the addresses of a node whose machine is off for good'
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and not __fish_seen_subcommand_from who check free adopt return" -f -a "adopt" -d 'Move the addresses of all pools of whereabouts into blocks, under running pods'
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and not __fish_seen_subcommand_from who check free adopt return" -f -a "return" -d 'Move the addresses of blocks back into the pools of whereabouts'
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and __fish_seen_subcommand_from who" -l kubeconfig -d 'Path of the kubeconfig [default: KUBECONFIG, then ~/.kube/config]' -r -F
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and __fish_seen_subcommand_from who" -l context -d 'Context of the kubeconfig [default: the current one]' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and __fish_seen_subcommand_from who" -s n -l namespace -d 'Namespace [default: that of the context]' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and __fish_seen_subcommand_from who" -s o -l output -d 'Output format' -r -f -a "text\t''
json\t''"
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and __fish_seen_subcommand_from who" -s h -l help -d 'Print help'
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and __fish_seen_subcommand_from check" -l recheck -d 'Read again after this time and report only what is still so, since pods come and go; 0 reads once' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and __fish_seen_subcommand_from check" -l kubeconfig -d 'Path of the kubeconfig [default: KUBECONFIG, then ~/.kube/config]' -r -F
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and __fish_seen_subcommand_from check" -l context -d 'Context of the kubeconfig [default: the current one]' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and __fish_seen_subcommand_from check" -s n -l namespace -d 'Namespace [default: that of the context]' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and __fish_seen_subcommand_from check" -s o -l output -d 'Output format' -r -f -a "text\t''
json\t''"
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and __fish_seen_subcommand_from check" -s h -l help -d 'Print help'
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and __fish_seen_subcommand_from free" -l node -d 'The node' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and __fish_seen_subcommand_from free" -l kubeconfig -d 'Path of the kubeconfig [default: KUBECONFIG, then ~/.kube/config]' -r -F
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and __fish_seen_subcommand_from free" -l context -d 'Context of the kubeconfig [default: the current one]' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and __fish_seen_subcommand_from free" -s n -l namespace -d 'Namespace [default: that of the context]' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and __fish_seen_subcommand_from free" -s o -l output -d 'Output format' -r -f -a "text\t''
json\t''"
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and __fish_seen_subcommand_from free" -l yes -d 'Free them; without it nothing is changed'
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and __fish_seen_subcommand_from free" -s h -l help -d 'Print help'
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and __fish_seen_subcommand_from adopt" -l kubeconfig -d 'Path of the kubeconfig [default: KUBECONFIG, then ~/.kube/config]' -r -F
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and __fish_seen_subcommand_from adopt" -l context -d 'Context of the kubeconfig [default: the current one]' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and __fish_seen_subcommand_from adopt" -s n -l namespace -d 'Namespace [default: that of the context]' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and __fish_seen_subcommand_from adopt" -s o -l output -d 'Output format' -r -f -a "text\t''
json\t''"
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and __fish_seen_subcommand_from adopt" -l yes -d 'Move them; without it nothing is changed'
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and __fish_seen_subcommand_from adopt" -l without-leaked -d 'Leave out addresses of pods that do not exist, which none of their containers must use any more'
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and __fish_seen_subcommand_from adopt" -s h -l help -d 'Print help'
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and __fish_seen_subcommand_from return" -l kubeconfig -d 'Path of the kubeconfig [default: KUBECONFIG, then ~/.kube/config]' -r -F
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and __fish_seen_subcommand_from return" -l context -d 'Context of the kubeconfig [default: the current one]' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and __fish_seen_subcommand_from return" -s n -l namespace -d 'Namespace [default: that of the context]' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and __fish_seen_subcommand_from return" -s o -l output -d 'Output format' -r -f -a "text\t''
json\t''"
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and __fish_seen_subcommand_from return" -l yes -d 'Move them; without it nothing is changed'
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand ipam; and __fish_seen_subcommand_from return" -s h -l help -d 'Print help'
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand preflight" -l values -d 'Values of the planned installation, as `helm get values` prints them; may be repeated, and the last file wins' -r -F
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand preflight" -s f -l filename -d 'Read objects from files and directories instead of a cluster; - is stdin' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand preflight" -l kubeconfig -d 'Path of the kubeconfig [default: KUBECONFIG, then ~/.kube/config]' -r -F
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand preflight" -l context -d 'Context of the kubeconfig [default: the current one]' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand preflight" -s n -l namespace -d 'Namespace [default: that of the context]' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand preflight" -s o -l output -d 'Output format' -r -f -a "text\t''
json\t''"
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand preflight" -s h -l help -d 'Print help'
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand report" -l html -d 'Also write a page to this file, which needs nothing else' -r -F
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand report" -l vpn -d 'The VPN of a node, as `multus-distro vpn status --json` prints it there; may be repeated' -r -F
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand report" -l daemon-namespace -d 'Namespace of the daemons\' pods [default: all namespaces are searched]' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand report" -l kubeconfig -d 'Path of the kubeconfig [default: KUBECONFIG, then ~/.kube/config]' -r -F
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand report" -l context -d 'Context of the kubeconfig [default: the current one]' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand report" -s n -l namespace -d 'Namespace [default: that of the context]' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand report" -s o -l output -d 'Output format' -r -f -a "text\t''
json\t''"
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand report" -s A -l all-namespaces -d 'Pods and definitions of all namespaces'
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand report" -l full -d 'Include values of configurations and cni-args, which may be secret'
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand report" -s h -l help -d 'Print help'
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand version" -l kubeconfig -d 'Path of the kubeconfig [default: KUBECONFIG, then ~/.kube/config]' -r -F
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand version" -l context -d 'Context of the kubeconfig [default: the current one]' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand version" -s n -l namespace -d 'Namespace [default: that of the context]' -r
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand version" -s o -l output -d 'Output format' -r -f -a "text\t''
json\t''"
complete -c kubectl-multus -n "__fish_kubectl_multus_using_subcommand version" -s h -l help -d 'Print help'

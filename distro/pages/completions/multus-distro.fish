# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_multus_distro_global_optspecs
    string join \n V/version h/help
end

function __fish_multus_distro_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_multus_distro_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_multus_distro_using_subcommand
    set -l cmd (__fish_multus_distro_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c multus-distro -n "__fish_multus_distro_needs_command" -s V -s v -l version -d 'Print the version'
complete -c multus-distro -n "__fish_multus_distro_needs_command" -s h -l help -d 'Print help'
complete -c multus-distro -n "__fish_multus_distro_needs_command" -f -a "run" -d 'Stage on a server, then become the distro'
complete -c multus-distro -n "__fish_multus_distro_needs_command" -f -a "chart" -d 'The embedded charts'
complete -c multus-distro -n "__fish_multus_distro_needs_command" -f -a "images" -d 'The images that the charts name'
complete -c multus-distro -n "__fish_multus_distro_needs_command" -f -a "verify" -d 'Check what is staged and installed on this node, byte by byte'
complete -c multus-distro -n "__fish_multus_distro_needs_command" -f -a "install" -d 'Start the distro through this program, with systemd'
complete -c multus-distro -n "__fish_multus_distro_needs_command" -f -a "uninstall" -d 'Undo install: delete the drop-in, unstage, and end the use of the VPN'
complete -c multus-distro -n "__fish_multus_distro_needs_command" -f -a "vpn" -d 'Nodes that meet over a VPN'
complete -c multus-distro -n "__fish_multus_distro_needs_command" -f -a "doctor" -d 'Report what is wrong on this node, and how to fix it'
complete -c multus-distro -n "__fish_multus_distro_needs_command" -f -a "version" -d 'Print the version, with the commit and date of the release'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand run" -l distro -d 'The distro, where it does not follow from the program\'s name' -r -f -a "k3s\t'K3s: charts among the static files, a manifest that names their address'
rke2\t'RKE2: a manifest that carries the charts'"
complete -c multus-distro -n "__fish_multus_distro_using_subcommand run" -l data-dir -d 'The distro\'s data directory, where its arguments do not name it' -r -F
complete -c multus-distro -n "__fish_multus_distro_using_subcommand run" -l vpn-auth-file -d 'File of mode 0600 with the VPN\'s settings: name=tailscale,joinKey=KEY[,controlServerURL=URL][,extraArgs=ARGS], or name=wireguard,interface=NAME[,pods=routes|vxlan], or name=interface,interface=NAME' -r -F
complete -c multus-distro -n "__fish_multus_distro_using_subcommand run" -l vpn-auth -d 'The VPN\'s settings themselves, which every user of the node can read: prefer the file' -r
complete -c multus-distro -n "__fish_multus_distro_using_subcommand run" -l vpn-cluster-cidr -d 'The networks of the cluster\'s pods, where an agent cannot ask its server for them' -r
complete -c multus-distro -n "__fish_multus_distro_using_subcommand run" -l multus -d 'Stage Multus; without it what was staged earlier is removed, and left as it is on a VPN'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand chart; and not __fish_seen_subcommand_from list get" -s h -l help -d 'Print help'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand chart; and not __fish_seen_subcommand_from list get" -f -a "list" -d 'List the embedded charts'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand chart; and not __fish_seen_subcommand_from list get" -f -a "get" -d 'Write one of the embedded charts'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand chart; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand chart; and __fish_seen_subcommand_from get" -l out -d 'File to write; stdout unless set' -r -F
complete -c multus-distro -n "__fish_multus_distro_using_subcommand chart; and __fish_seen_subcommand_from get" -s h -l help -d 'Print help'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand images; and not __fish_seen_subcommand_from list verify install" -s h -l help -d 'Print help'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand images; and not __fish_seen_subcommand_from list verify install" -f -a "list" -d 'List the images, one full reference a line'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand images; and not __fish_seen_subcommand_from list verify install" -f -a "verify" -d 'Check a directory with a release\'s archives, byte by byte'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand images; and not __fish_seen_subcommand_from list verify install" -f -a "install" -d 'Check a directory with a release\'s archives, and copy the one for this architecture to where the distro imports it'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand images; and __fish_seen_subcommand_from list" -l system-default-registry -d 'Registry that takes the place of the public one, as on nodes with this system-default-registry' -r
complete -c multus-distro -n "__fish_multus_distro_using_subcommand images; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand images; and __fish_seen_subcommand_from verify" -l key -d 'Also check that the owner of this public key signed the checksums; PEM. It takes the place of a built-in key' -r -F
complete -c multus-distro -n "__fish_multus_distro_using_subcommand images; and __fish_seen_subcommand_from verify" -s h -l help -d 'Print help'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand images; and __fish_seen_subcommand_from install" -l key -d 'Install nothing that the owner of this public key did not sign; PEM. It takes the place of a built-in key' -r -F
complete -c multus-distro -n "__fish_multus_distro_using_subcommand images; and __fish_seen_subcommand_from install" -l distro -d 'The distro, where this node has both or neither' -r -f -a "k3s\t'K3s: charts among the static files, a manifest that names their address'
rke2\t'RKE2: a manifest that carries the charts'"
complete -c multus-distro -n "__fish_multus_distro_using_subcommand images; and __fish_seen_subcommand_from install" -l data-dir -d 'The distro\'s data directory, where it is not the default one' -r -F
complete -c multus-distro -n "__fish_multus_distro_using_subcommand images; and __fish_seen_subcommand_from install" -l conditional-import -d 'Also make .cache.json, with which the distro imports an archive only when it has changed: every archive in its directory, not only this release\'s'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand images; and __fish_seen_subcommand_from install" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand verify" -l distro -d 'The distro, where this node has both' -r -f -a "k3s\t'K3s: charts among the static files, a manifest that names their address'
rke2\t'RKE2: a manifest that carries the charts'"
complete -c multus-distro -n "__fish_multus_distro_using_subcommand verify" -l data-dir -d 'The distro\'s data directory, where it is not the default one' -r -F
complete -c multus-distro -n "__fish_multus_distro_using_subcommand verify" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand install" -l unit -d 'The unit, where this node has several, or one of another name' -r
complete -c multus-distro -n "__fish_multus_distro_using_subcommand install" -l distro -d 'The distro, where this node has both' -r -f -a "k3s\t'K3s: charts among the static files, a manifest that names their address'
rke2\t'RKE2: a manifest that carries the charts'"
complete -c multus-distro -n "__fish_multus_distro_using_subcommand install" -l vpn-auth-file -d 'Put the node on the VPN of this file, and leave Multus on or off as it is; a unit of its own keeps the VPN up until uninstall' -r -F
complete -c multus-distro -n "__fish_multus_distro_using_subcommand install" -l vpn-cluster-cidr -d 'The networks of the cluster\'s pods, where an agent cannot ask its server for them' -r
complete -c multus-distro -n "__fish_multus_distro_using_subcommand install" -l program -d 'This program\'s path on the node; its present path unless set' -r -F
complete -c multus-distro -n "__fish_multus_distro_using_subcommand install" -l root -d 'The directory that stands for the node\'s root' -r -F
complete -c multus-distro -n "__fish_multus_distro_using_subcommand install" -l multus -d 'Start with Multus; on unless --vpn-auth-file is given, or this node has only the VPN'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand install" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand uninstall" -l unit -d 'The unit, where this node has several, or one of another name' -r
complete -c multus-distro -n "__fish_multus_distro_using_subcommand uninstall" -l distro -d 'The distro, where this node has both' -r -f -a "k3s\t'K3s: charts among the static files, a manifest that names their address'
rke2\t'RKE2: a manifest that carries the charts'"
complete -c multus-distro -n "__fish_multus_distro_using_subcommand uninstall" -l root -d 'The directory that stands for the node\'s root' -r -F
complete -c multus-distro -n "__fish_multus_distro_using_subcommand uninstall" -l force -d 'Remove staged files, too, that were edited since'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand uninstall" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand vpn; and not __fish_seen_subcommand_from plan run status down" -s h -l help -d 'Print help'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand vpn; and not __fish_seen_subcommand_from plan run status down" -f -a "plan" -d 'Print every address that the distro would get, and change nothing'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand vpn; and not __fish_seen_subcommand_from plan run status down" -f -a "run" -d 'Keep the VPN of this node up, and the routes to its pods'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand vpn; and not __fish_seen_subcommand_from plan run status down" -f -a "status" -d 'Report the VPN of this node, what is wrong with it, and how to fix it'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand vpn; and not __fish_seen_subcommand_from plan run status down" -f -a "down" -d 'End the use of the VPN, and take it down if `vpn run` brought it up'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand vpn; and __fish_seen_subcommand_from plan" -l vpn-cluster-cidr -d 'The networks of the cluster\'s pods, where an agent cannot ask its server for them' -r
complete -c multus-distro -n "__fish_multus_distro_using_subcommand vpn; and __fish_seen_subcommand_from plan" -l interface -d 'The VPN\'s interface, for a plan before the VPN runs' -r
complete -c multus-distro -n "__fish_multus_distro_using_subcommand vpn; and __fish_seen_subcommand_from plan" -l address -d 'The node\'s addresses in the VPN' -r
complete -c multus-distro -n "__fish_multus_distro_using_subcommand vpn; and __fish_seen_subcommand_from plan" -l mtu -d 'The MTU of the VPN\'s interface' -r
complete -c multus-distro -n "__fish_multus_distro_using_subcommand vpn; and __fish_seen_subcommand_from plan" -l name -d 'The node\'s name in the VPN' -r
complete -c multus-distro -n "__fish_multus_distro_using_subcommand vpn; and __fish_seen_subcommand_from plan" -l vpn-auth-file -d 'File of mode 0600 with the VPN\'s settings: name=tailscale,joinKey=KEY[,controlServerURL=URL][,extraArgs=ARGS], or name=wireguard,interface=NAME[,pods=routes|vxlan], or name=interface,interface=NAME' -r -F
complete -c multus-distro -n "__fish_multus_distro_using_subcommand vpn; and __fish_seen_subcommand_from plan" -l vpn-auth -d 'The VPN\'s settings themselves, which every user of the node can read: prefer the file' -r
complete -c multus-distro -n "__fish_multus_distro_using_subcommand vpn; and __fish_seen_subcommand_from plan" -l distro -d 'The distro, where it does not follow from the program\'s name' -r -f -a "k3s\t'K3s: charts among the static files, a manifest that names their address'
rke2\t'RKE2: a manifest that carries the charts'"
complete -c multus-distro -n "__fish_multus_distro_using_subcommand vpn; and __fish_seen_subcommand_from plan" -l root -d 'The directory that stands for the node\'s root' -r -F
complete -c multus-distro -n "__fish_multus_distro_using_subcommand vpn; and __fish_seen_subcommand_from plan" -l json -d 'As JSON'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand vpn; and __fish_seen_subcommand_from plan" -l config -d 'As a file for the distro\'s config.yaml.d'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand vpn; and __fish_seen_subcommand_from plan" -l flannel-conf -d 'The configuration of flannel, which is the file of the plan\'s flannel-conf'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand vpn; and __fish_seen_subcommand_from plan" -l args -d 'Only the arguments that are added to the distro\'s, one on each line'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand vpn; and __fish_seen_subcommand_from plan" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand vpn; and __fish_seen_subcommand_from run" -l vpn-auth-file -d 'File of mode 0600 with the VPN\'s settings: name=tailscale,joinKey=KEY[,controlServerURL=URL][,extraArgs=ARGS], or name=wireguard,interface=NAME[,pods=routes|vxlan], or name=interface,interface=NAME' -r -F
complete -c multus-distro -n "__fish_multus_distro_using_subcommand vpn; and __fish_seen_subcommand_from run" -l vpn-auth -d 'The VPN\'s settings themselves, which every user of the node can read: prefer the file' -r
complete -c multus-distro -n "__fish_multus_distro_using_subcommand vpn; and __fish_seen_subcommand_from run" -l root -d 'The directory that stands for the node\'s root' -r -F
complete -c multus-distro -n "__fish_multus_distro_using_subcommand vpn; and __fish_seen_subcommand_from run" -s h -l help -d 'Print help'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand vpn; and __fish_seen_subcommand_from status" -l root -d 'The directory that stands for the node\'s root' -r -F
complete -c multus-distro -n "__fish_multus_distro_using_subcommand vpn; and __fish_seen_subcommand_from status" -l probe -d 'Ask the other nodes of the cluster, too: the tunnel, the API server\'s port and the kubelet\'s'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand vpn; and __fish_seen_subcommand_from status" -l json -d 'As JSON'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand vpn; and __fish_seen_subcommand_from status" -s h -l help -d 'Print help'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand vpn; and __fish_seen_subcommand_from down" -l root -d 'The directory that stands for the node\'s root' -r -F
complete -c multus-distro -n "__fish_multus_distro_using_subcommand vpn; and __fish_seen_subcommand_from down" -l logout -d 'Log this node out, too, whoever logged it in: as at the end of a node that does not come back'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand vpn; and __fish_seen_subcommand_from down" -l cut-session -d 'Take the VPN down even where this very session came over it, and would be cut'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand vpn; and __fish_seen_subcommand_from down" -s h -l help -d 'Print help'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand doctor" -l root -d 'The directory that stands for the node\'s root' -r -F
complete -c multus-distro -n "__fish_multus_distro_using_subcommand doctor" -l cri-socket -d 'The runtime\'s socket, where several runtimes run pods' -r -F
complete -c multus-distro -n "__fish_multus_distro_using_subcommand doctor" -l distro -d 'The distro, where this node has both' -r -f -a "k3s\t'K3s: charts among the static files, a manifest that names their address'
rke2\t'RKE2: a manifest that carries the charts'"
complete -c multus-distro -n "__fish_multus_distro_using_subcommand doctor" -l data-dir -d 'The distro\'s data directory, where it is not the default one' -r -F
complete -c multus-distro -n "__fish_multus_distro_using_subcommand doctor" -l json -d 'As JSON'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand doctor" -l all -d 'Also every source that names a directory, and what was rejected'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand doctor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand version" -l json -d 'As JSON'
complete -c multus-distro -n "__fish_multus_distro_using_subcommand version" -s h -l help -d 'Print help'

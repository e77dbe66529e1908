# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_multus_airgap_global_optspecs
    string join \n V/version h/help
end

function __fish_multus_airgap_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_multus_airgap_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_multus_airgap_using_subcommand
    set -l cmd (__fish_multus_airgap_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c multus-airgap -n "__fish_multus_airgap_needs_command" -s V -s v -l version -d 'Print the version'
complete -c multus-airgap -n "__fish_multus_airgap_needs_command" -s h -l help -d 'Print help'
complete -c multus-airgap -n "__fish_multus_airgap_needs_command" -f -a "verify" -d 'Check a release, or a directory with archives, offline, down to the content of every layer'
complete -c multus-airgap -n "__fish_multus_airgap_needs_command" -f -a "explain" -d 'Say what a release, a directory with archives, or a file in it holds'
complete -c multus-airgap -n "__fish_multus_airgap_needs_command" -f -a "push" -d 'Send images, with the lists of what is inside of them, and charts to a registry; a second run sends nothing'
complete -c multus-airgap -n "__fish_multus_airgap_needs_command" -f -a "version" -d 'Print the version, with the commit and date of the release'
complete -c multus-airgap -n "__fish_multus_airgap_using_subcommand verify" -l key -d 'Also check that the owner of this public key signed it, all of it; PEM, ECDSA P-256 or Ed25519' -r -F
complete -c multus-airgap -n "__fish_multus_airgap_using_subcommand verify" -l attested-by -d 'Also check that the owner of this public key states to have made these very bytes; once for each builder' -r -F
complete -c multus-airgap -n "__fish_multus_airgap_using_subcommand verify" -l allow-dirty -d 'Accept a release of a checkout with uncommitted changes, for trials'
complete -c multus-airgap -n "__fish_multus_airgap_using_subcommand verify" -l json -d 'Print its content as JSON'
complete -c multus-airgap -n "__fish_multus_airgap_using_subcommand verify" -s h -l help -d 'Print help'
complete -c multus-airgap -n "__fish_multus_airgap_using_subcommand explain" -l json -d 'Print as JSON'
complete -c multus-airgap -n "__fish_multus_airgap_using_subcommand explain" -s h -l help -d 'Print help'
complete -c multus-airgap -n "__fish_multus_airgap_using_subcommand push" -l charts-to -d 'Send charts below this repository, as team/helm for REGISTRY/team/helm/rke2-multus; below charts/ of the path of REGISTRY unless set' -r
complete -c multus-airgap -n "__fish_multus_airgap_using_subcommand push" -l user -d 'User of the registry, with the password in `MULTUS_REGISTRY_PASSWORD`; the login that docker, podman or skopeo stores unless set' -r
complete -c multus-airgap -n "__fish_multus_airgap_using_subcommand push" -l certs-d -d 'Directory with a directory of certificates for each host: HOST:PORT/ca.crt, and client.cert with client.key for a registry that wants them; those of docker, podman and containerd below /etc unless set' -r -F
complete -c multus-airgap -n "__fish_multus_airgap_using_subcommand push" -l key -d 'Also check that the owner of this public key signed it, all of it; PEM, ECDSA P-256 or Ed25519' -r -F
complete -c multus-airgap -n "__fish_multus_airgap_using_subcommand push" -l attested-by -d 'Also check that the owner of this public key states to have made these very bytes; once for each builder' -r -F
complete -c multus-airgap -n "__fish_multus_airgap_using_subcommand push" -l images-only -d 'Send no charts'
complete -c multus-airgap -n "__fish_multus_airgap_using_subcommand push" -l plain-http -d 'Connect without TLS'
complete -c multus-airgap -n "__fish_multus_airgap_using_subcommand push" -l json -d 'Print what was sent as JSON'
complete -c multus-airgap -n "__fish_multus_airgap_using_subcommand push" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c multus-airgap -n "__fish_multus_airgap_using_subcommand version" -s h -l help -d 'Print help'

//! The keys of the plugins' configurations, by which misspelled ones are found. The plugins themselves ignore keys that they do not know.

/// Keys that every plugin may have.
const COMMON: &str = "cniVersion cniVersions name type plugins capabilities args ipam dns mtu";

/// In each line a plugin and the keys of its object; of one that hands out addresses, those of `ipam`.
pub(crate) const OWN: &str = "\
bandwidth ingressRate ingressBurst egressRate egressBurst
bond links linksInContainer mode miimon failOverMac xmitHashPolicy allSlavesActive tlbDynamicLb
bridge bridge isGateway forceAddress isDefaultGateway ipMasq ipMasqBackend hairpinMode promiscMode vlanTrunk vlan preserveDefaultVlan \
macspoofchk enabledad disableContainerInterface portIsolation
dhcp daemonSocketPath provide request priority broadcast skipDefault
dummy
firewall backend iptablesAdminChainName firewalldZone ingressPolicy
host-device device hwaddr kernelpath pciBusID dpdkMode
host-local ranges subnet rangeStart rangeEnd gateway routes dataDir resolvConf
ipvlan master linkInContainer mode
macvlan master mode mac linkInContainer bcqueuelen
multus-ipam ranges subnet rangeStart rangeEnd gateway exclude space sticky routes dns resolvConf
portmap backend snat conditionsV4 conditionsV6 masqAll markMasqBit externalSetMarkChain
ptp ipMasq ipMasqBackend
sbr table
static addresses routes dns
tap multiQueue owner group selinuxContext bridge mac
tuning sysctl mac mtu promisc allmulti txQLen dataDir
vlan master vlanId linkInContainer
vrf vrfname table";

/// Returns the keys that a plugin reads, or `None` for a plugin of somebody else.
pub fn of(kind: &str) -> Option<Vec<&'static str>> {
    let mut rows = OWN.lines().map(|line| line.split(' '));
    let own = rows.find_map(|mut row| (row.next() == Some(kind)).then_some(row))?;
    Some(own.chain(COMMON.split(' ')).collect())
}

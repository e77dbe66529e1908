//! The names under which the one chart is published.

/// The distro that a name is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distro {
    /// K3s fetches charts from its own static files.
    K3s,
    /// RKE2 carries charts inside their manifests.
    Rke2,
}

impl Distro {
    /// The distro's word for itself.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::K3s => "k3s",
            Self::Rke2 => "rke2",
        }
    }
}

/// A name of the chart; nothing else differs between two identities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The chart's name, which is the release's, too.
    pub name: &'static str,
    /// The distro that ships it.
    pub distro: Distro,
}

/// Every name.
pub const IDENTITIES: [Identity; 2] = [
    Identity {
        name: "rke2-multus",
        distro: Distro::Rke2,
    },
    Identity {
        name: "k3s-multus",
        distro: Distro::K3s,
    },
];

impl Identity {
    /// The identity of a distro.
    pub fn of(distro: Distro) -> Self {
        match distro {
            Distro::Rke2 => IDENTITIES[0],
            Distro::K3s => IDENTITIES[1],
        }
    }

    /// The name of the chart that brings the CRD.
    pub fn crd_name(self) -> String {
        format!("{}-crd", self.name)
    }
}

//! The names under which the chart is published, and the two charts of each name.

/// A distro for which the chart is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distro {
    /// K3s fetches charts from its own static files.
    K3s,
    /// RKE2 has charts inside their manifests.
    Rke2,
}

impl Distro {
    /// Returns the name of the distro's program.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::K3s => "k3s",
            Self::Rke2 => "rke2",
        }
    }
}

/// A name of the chart. The charts of two identities differ in nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The chart's name, which is also that of the release.
    pub name: &'static str,
    /// The distro that ships it; `None` for clusters of no distro that does.
    pub distro: Option<Distro>,
}

/// All identities.
pub const IDENTITIES: [Identity; 3] = [
    Identity {
        name: "rke2-multus",
        distro: Some(Distro::Rke2),
    },
    Identity {
        name: "k3s-multus",
        distro: Some(Distro::K3s),
    },
    Identity::OTHER,
];

impl Identity {
    /// The identity for clusters that are neither K3s nor RKE2.
    pub const OTHER: Self = Self {
        name: "multus",
        distro: None,
    };

    /// Returns the word for the clusters of this identity.
    pub fn cluster(self) -> &'static str {
        self.distro.map_or("kubernetes", Distro::as_str)
    }

    /// Returns the identity of a distro.
    pub fn of(distro: Distro) -> Self {
        match distro {
            Distro::Rke2 => IDENTITIES[0],
            Distro::K3s => IDENTITIES[1],
        }
    }

    /// Returns the name of the chart that installs the CRDs.
    pub fn crd_name(self) -> String {
        format!("{}-crd", self.name)
    }
}

/// One of the two charts of an identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chart {
    /// The CRDs of `NetworkAttachmentDefinition` and `AddressBlock`.
    Crd,
    /// Everything else.
    Main,
}

/// Both charts, in the order in which they are installed.
pub const CHARTS: [Chart; 2] = [Chart::Crd, Chart::Main];

impl Chart {
    /// Returns the chart's name under an identity.
    pub fn name(self, identity: Identity) -> String {
        match self {
            Self::Main => identity.name.to_owned(),
            Self::Crd => identity.crd_name(),
        }
    }

    /// Returns the archive's file name.
    pub fn file_name(self, identity: Identity, version: &str) -> String {
        format!("{}-{version}.tgz", self.name(identity))
    }
}

//! Signatures of images and charts in the two forms that registries hold: bundles (cosign 3), and a signed text (cosign 1 and 2, and the
//! admission controllers that came with them).

use anyhow::Context as _;
use archive::{digest::Digest, oci};
use serde_json::json;

use super::{CHART, IMAGES, statement::Statement};
use crate::{charts, description::Release, names, tree::Tree};

/// The ending of the signed text of the older form.
pub const PAYLOAD: &str = ".json";
/// The ending of its signature.
pub const PAYLOAD_SIGNATURE: &str = ".json.sig";
/// The type of the statement with which an image is signed.
pub const PREDICATE: &str = "https://sigstore.dev/cosign/sign/v1";
/// An image or chart that is signed by the digest that its tag gets in a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// The name without a tag.
    pub name: String,
    pub digest: Digest,
}

impl Signed {
    /// Returns the path of one of its signatures.
    pub(super) fn path(&self, ending: &str) -> String {
        format!("{IMAGES}{}{ending}", self.digest.hex())
    }

    /// Returns the text that is signed in the older form.
    pub(super) fn payload(&self) -> Vec<u8> {
        let critical = json!({
            "identity": {"docker-reference": self.name},
            "image": {"docker-manifest-digest": self.digest},
            "type": "cosign container image signature",
        });
        oci::to_bytes(&json!({"critical": critical, "optional": null}))
    }

    pub(super) fn statement(&self) -> Statement {
        Statement::new([(self.name.clone(), self.digest)], PREDICATE, json!({}))
    }
}

/// Returns all images and charts of a release. A chart's digest follows from its archive and its signature for Helm.
pub fn signed(files: &Tree, release: &Release, signatures: &Tree) -> anyhow::Result<Vec<Signed>> {
    let mut all = Vec::new();
    for image in &release.images {
        let reference = names::reference(&image.reference);
        let reference = reference.with_context(|| image.reference.clone())?;
        all.push(Signed {
            name: format!("{}/{}", reference.registry(), reference.repository()),
            digest: image.digest,
        });
    }
    for chart in &release.charts {
        let path = &chart.path;
        let tgz = files
            .get(path)
            .with_context(|| format!("{path} is missing"))?;
        let provenance = signatures.get(&format!("{path}{CHART}"));
        let artifact = charts::artifact(tgz, provenance).with_context(|| path.clone())?;
        all.push(Signed {
            name: artifact.name,
            digest: artifact.descriptor.digest,
        });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use archive::digest::sha256;

    use super::*;

    #[test]
    fn signed_text_is_that_of_cosign() {
        let digest = sha256(b"x");
        let signed = Signed {
            name: "docker.io/multusrs/multus".to_owned(),
            digest,
        };
        let expected = format!(
            r#"{{"critical":{{"identity":{{"docker-reference":"docker.io/multusrs/multus"}},"image":{{"docker-manifest-digest":"{digest}"}},"type":"cosign container image signature"}},"optional":null}}"#
        );
        assert_eq!(String::from_utf8(signed.payload()).unwrap(), expected);
    }
}

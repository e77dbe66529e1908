//! Makes the signatures of a release as files. The same key makes the same bytes of the same release.

use signing::{SecretKey, bundle, openpgp};

use super::{
    BUNDLE, Build, CHART, IMAGES, KEYRING, chart, image, provenance, provenance_path, signed,
    sums_bundle, sums_signature,
};
use archive::lists;

use crate::{
    description::{Release, SUMS},
    tree::Tree,
};

/// Returns all signatures of the owner of a release.
pub fn sign(
    files: &Tree,
    release: &Release,
    key: &SecretKey,
    build: &Build,
) -> anyhow::Result<Tree> {
    let mut made = state(files, release, key, build)?;
    let sums = files.get(SUMS).unwrap_or_default();
    made.add(sums_signature(SUMS), key.sign_text(sums));
    made.add(sums_bundle(), bundle::sign_blob(sums, key));
    for arch in &release.architectures {
        let path = format!("airgap/{}", lists::sums_name(arch));
        let sums = files.get(&path).unwrap_or_default();
        made.add(sums_signature(&path), key.sign_text(sums));
    }
    for chart in &release.charts {
        let path = &chart.path;
        let text = chart::text(path, files.get(path).unwrap_or_default())?;
        made.add(
            format!("{path}{CHART}"),
            openpgp::sign_text(&text, key, release.epoch),
        );
    }
    made.add(KEYRING, openpgp::keyring(key, chart::KEY_NAME));
    for one in signed(files, release, &made)? {
        let payload = one.payload();
        made.add(one.path(image::PAYLOAD_SIGNATURE), key.sign_text(&payload));
        made.add(one.path(image::PAYLOAD), payload);
        let statement = one.statement().to_bytes();
        let path = format!("{IMAGES}{}{BUNDLE}", one.digest.hex());
        made.add(path, bundle::sign_statement(&statement, key));
    }
    Ok(made)
}

/// Returns the statement about how a release was made, alone: that of a further builder.
pub fn state(
    files: &Tree,
    release: &Release,
    key: &SecretKey,
    build: &Build,
) -> anyhow::Result<Tree> {
    let statement = provenance::statement(files, release, build)?.to_bytes();
    let mut made = Tree::default();
    made.add(
        provenance_path(&key.public().id()),
        bundle::sign_statement(&statement, key),
    );
    Ok(made)
}

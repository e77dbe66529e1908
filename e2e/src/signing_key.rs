//! Keys of openssl, with which releases are signed.

use std::{path::PathBuf, process::Command};

use crate::{sh, test_env::TestEnv};

/// Makes a private key and its public half with openssl.
pub(crate) fn make(
    env: &TestEnv,
    name: &str,
    is_ed25519: bool,
) -> anyhow::Result<(PathBuf, PathBuf)> {
    let [secret, key] = ["key", "pub"].map(|end| env.dir.join(format!("{name}.{end}")));
    let algorithm: &[&str] = if is_ed25519 {
        &["ed25519"]
    } else {
        &["EC", "-pkeyopt", "ec_paramgen_curve:P-256"]
    };
    let mut make = Command::new("openssl");
    make.args(["genpkey", "-algorithm"]).args(algorithm);
    sh::run(make.arg("-out").arg(&secret))?;
    let mut public = Command::new("openssl");
    public.args(["pkey", "-pubout", "-in"]).arg(&secret);
    sh::run(public.arg("-out").arg(&key))?;
    Ok((secret, key))
}

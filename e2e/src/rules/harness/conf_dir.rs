//! Configuration files in `confDir`.

use std::fs;

use super::Harness;

/// The default of `confDir`.
pub(crate) const MULTUS_CONF_DIR: &str = "/etc/cni/multus/net.d";

/// Files in `confDir`, removed on drop.
pub(crate) struct ConfFiles<'a>(&'a Harness);

impl Harness {
    /// Writes files, given by name and text.
    pub(crate) fn conf_files(
        &self,
        files: &[(&str, impl AsRef<str>)],
    ) -> anyhow::Result<ConfFiles<'_>> {
        let guard = ConfFiles(self);
        for (name, text) in files {
            self.node()
                .write(&format!("{MULTUS_CONF_DIR}/{name}"), text.as_ref())?;
        }
        Ok(guard)
    }
}

impl Drop for ConfFiles<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.0.node().path(MULTUS_CONF_DIR));
    }
}

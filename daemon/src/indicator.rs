//! The readiness indicator: a file that the default network's own daemon puts there while it is ready.
//!
//! A default network that goes away stops new pods until it is back. Our configuration stays all the while: without it pods
//! would come up with that network alone, or none.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use node::root::Root;

use crate::readiness::{Part, Readiness};

const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Looks again and again.
pub(crate) async fn follow(root: Arc<Root>, readiness: Arc<Readiness>, file: PathBuf) {
    loop {
        tokio::time::sleep(LOOK_AGAIN).await;
        look(&root, &readiness, &file);
    }
}

/// Looks once, and tells the readiness.
pub(crate) fn look(root: &Root, readiness: &Readiness, file: &Path) {
    if root.exists(file) {
        return readiness.well(Part::Indicator);
    }
    let reason = format!(
        "have you checked that your default network is ready? still waiting for readinessindicatorfile @ {}",
        file.display()
    );
    readiness.missing(Part::Indicator, reason);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_comes_and_goes_with_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let (root, readiness) = (Root::open(dir.path()).unwrap(), Readiness::new(&[]));
        let look = || {
            super::look(&root, &readiness, Path::new("/ready"));
            readiness.problem()
        };
        assert!(look().unwrap().contains("readinessindicatorfile @ /ready"));
        std::fs::write(dir.path().join("ready"), "").unwrap();
        assert_eq!(look(), None);
        std::fs::remove_file(dir.path().join("ready")).unwrap();
        assert!(look().is_some());
    }
}

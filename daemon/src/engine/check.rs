//! CHECK verifies the attachments in state in order, up to the first one that fails.

use cni::chain;
use cni::types::CniError;
use cni::version::Version;
use plan::netconf::Netconf;

use super::failure::Failure;
use super::invocation::DelegateContext;
use super::verb_exec::VerbExec;
use super::{ContainerRequest, Engine, cached_results};
use crate::state::Progress;

/// The step of CHECK in texts.
const CHECKING: &str = "checking";

impl Engine {
    /// Verifies a container's attachments. Networks with a version before 0.4.0 are skipped, as CHECK came with that version.
    pub fn check(&self, request: &ContainerRequest, netconf: &Netconf) -> Result<(), Failure> {
        if netconf.disable_check {
            return Ok(());
        }
        let id = &request.container_id;
        let store = self.store(netconf);
        let _guard = self.locks.lock(&store, id);
        let known = store.load(id, &request.ifname)?;
        let mut state = known.ok_or_else(|| {
            CniError::new(
                CniError::UNKNOWN_CONTAINER,
                format!("container {id} has no known attachments"),
            )
        })?;
        let cache = self.cache_dir(&store)?;
        cached_results::complete(
            &mut state,
            &cached_results::entries(&cache.path, id),
            netconf,
        );
        let context = DelegateContext::new(request, &state.pod, netconf, &cache);
        for (index, delegate) in state.delegates.iter().enumerate() {
            let network = &delegate.config.name;
            if delegate.progress != Progress::Started {
                let text = format!("interface {} was never attached", delegate.ifname);
                let error = CniError::new(CniError::UNKNOWN_CONTAINER, text);
                let failure = Failure::from(error);
                return Err(failure.on_network(&state.pod, CHECKING, network));
            }
            if delegate.config.version() >= Version::V0_4_0 {
                let invocation = context.invocation(delegate, index == 0);
                let exec = VerbExec::attaching(&*self.exec, &context);
                let check = || chain::check(&exec, &delegate.config, &invocation);
                let kind = delegate.config.kind();
                let checked = self.metrics.timed_delegate(kind, "CHECK", check);
                checked
                    .map_err(|error| Failure::from_chain(&state.pod, network, CHECKING, &error))?;
            }
        }
        Ok(())
    }
}

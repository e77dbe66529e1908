//! The configuration of bandwidth.

use serde::Deserialize;

use crate::call::Call;
use crate::error::{Context, Result, bail};

/// The configuration. When it has limits of its own, even zeros, those of the runtime do not count.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Config {
    #[serde(flatten)]
    pub(crate) limits: Limits,
    #[serde(rename = "runtimeconfig")]
    pub(crate) runtime_config: RuntimeConfig,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RuntimeConfig {
    pub(crate) bandwidth: Limits,
}

/// Limits in bits; 0 is none.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Limits {
    pub(crate) ingressrate: Option<u64>,
    pub(crate) ingressburst: Option<u64>,
    pub(crate) egressrate: Option<u64>,
    pub(crate) egressburst: Option<u64>,
}

impl Limits {
    pub(crate) fn is_empty(&self) -> bool {
        let all = [
            self.ingressrate,
            self.ingressburst,
            self.egressrate,
            self.egressburst,
        ];
        all.iter().all(Option::is_none)
    }
}

/// One direction's limit, in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) rate: u64,
    pub(crate) burst: u64,
}

impl Limit {
    /// Returns the limit, or `None` when there is none.
    pub(crate) fn new(rate: Option<u64>, burst: Option<u64>) -> Result<Option<Self>> {
        let (rate, burst) = (rate.unwrap_or_default(), burst.unwrap_or_default());
        if burst == 0 && rate != 0 {
            bail!("if rate is set, burst must also be set");
        }
        if rate == 0 && burst != 0 {
            bail!("if burst is set, rate must also be set");
        }
        if burst / 8 >= u64::from(u32::MAX) {
            bail!("burst cannot be more than 4GB");
        }
        Ok((rate != 0).then_some(Self { rate, burst }))
    }
}

/// The limits of both directions, seen from the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) ingress: Option<Limit>,
    pub(crate) egress: Option<Limit>,
}

impl Plan {
    pub(crate) fn load(call: &Call) -> Result<Self> {
        let config: Config = call
            .config()
            .context(|| "failed to parse network configuration".to_owned())?;
        let limits = if config.limits.is_empty() {
            config.runtime_config.bandwidth
        } else {
            config.limits
        };
        Ok(Self {
            ingress: Limit::new(limits.ingressrate, limits.ingressburst)?,
            egress: Limit::new(limits.egressrate, limits.egressburst)?,
        })
    }

    pub(crate) fn limits_nothing(self) -> bool {
        self.ingress.is_none() && self.egress.is_none()
    }
}

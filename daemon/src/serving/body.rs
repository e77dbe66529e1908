//! Reading a request's body: bounded in time, in size, and in what all bodies together take.

use std::{sync::Arc, time::Duration};

use cmdline::causes;
use cni::types::CniError;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Bytes};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A request has to be whole by then.
const TIME: Duration = Duration::from_secs(10);
/// Bodies up to this size count for nothing: they are those of nearly all requests.
const SMALL: usize = 64 << 10;
/// Two of the largest at once.
const BUDGET_KIB: usize = 2 * api::MAX_MESSAGE / 1024;

/// What large bodies share.
#[derive(Debug, Clone)]
pub struct Bodies(Arc<Semaphore>);

/// A share of it; given back when it is dropped.
pub(super) type Share = Option<OwnedSemaphorePermit>;

/// Why there is no body.
pub(super) enum Unread {
    /// It is wrong, or did not come.
    Broken(CniError),
    /// Others take too much; nothing is wrong with this one.
    Busy(CniError),
}

impl Default for Bodies {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(BUDGET_KIB)))
    }
}

impl Bodies {
    /// The whole body, and its share of what there is for large ones.
    pub(super) async fn read<B>(&self, body: B) -> Result<(Bytes, Share), Unread>
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        let broken = |reason: String| {
            let text = format!("cannot read the request: {reason}");
            Unread::Broken(CniError::new(CniError::DECODING_FAILURE, text))
        };
        let late = || format!("it was not whole after {} s", TIME.as_secs());
        let share = self.share(body.size_hint().upper()).await?;
        let whole = Limited::new(body, api::MAX_MESSAGE).collect();
        match tokio::time::timeout(TIME, whole).await {
            Ok(Ok(body)) => Ok((body.to_bytes(), share)),
            Ok(Err(error)) => Err(broken(causes(&*error))),
            Err(_) => Err(broken(late())),
        }
    }

    /// One without a length counts as the largest.
    async fn share(&self, length: Option<u64>) -> Result<Share, Unread> {
        let length = length.and_then(|length| usize::try_from(length).ok());
        let length = length.unwrap_or(api::MAX_MESSAGE).min(api::MAX_MESSAGE);
        if length <= SMALL {
            return Ok(None);
        }
        let share = u32::try_from(length.div_ceil(1024)).unwrap_or(u32::MAX);
        let acquired = Arc::clone(&self.0).acquire_many_owned(share);
        match tokio::time::timeout(TIME, acquired).await {
            Ok(Ok(share)) => Ok(Some(share)),
            _ => Err(Unread::Busy(CniError::new(
                CniError::TRY_AGAIN_LATER,
                "other large requests take all memory that there is for requests",
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use http_body_util::Full;

    use super::*;

    fn body(length: usize) -> Full<Bytes> {
        Full::new(Bytes::from(vec![b' '; length]))
    }

    #[tokio::test]
    async fn large_bodies_share_and_small_ones_pass() {
        let bodies = Bodies::default();
        let first = bodies.read(body(api::MAX_MESSAGE)).await.ok();
        let second = bodies.read(body(api::MAX_MESSAGE)).await.ok();
        assert!(first.is_some() && second.is_some());
        let mut third = Box::pin(bodies.read(body(SMALL + 1)));
        assert!(third.as_mut().now_or_never().is_none());
        assert!(bodies.read(body(SMALL)).await.is_ok());
        drop(first);
        assert!(third.await.is_ok());
    }

    #[tokio::test]
    async fn what_is_too_large_is_refused() {
        let refused = Bodies::default().read(body(api::MAX_MESSAGE + 1)).await;
        assert!(matches!(refused, Err(Unread::Broken(_))));
    }
}

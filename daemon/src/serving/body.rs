//! Reading a request's body: with limits of time, of size, and of the memory of all bodies together.

use std::{sync::Arc, time::Duration};

use cmdline::error_line;
use cni::types::CniError;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Bytes};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Limit for a body to be complete.
const TIME: Duration = Duration::from_secs(10);
/// Bodies up to this size are not counted; nearly all requests are smaller.
const SMALL: usize = 64 << 10;
/// Room for two bodies of the maximum size at once.
const BUDGET_KIB: usize = 2 * api::MAX_MESSAGE / 1024;

/// The memory that large bodies share.
#[derive(Debug, Clone)]
pub struct Bodies(Arc<Semaphore>);

/// A part of that memory, released when it is dropped.
pub(super) type Share = Option<OwnedSemaphorePermit>;

/// The reason why a body was not read.
pub(super) enum BodyError {
    /// It is invalid or incomplete.
    Broken(CniError),
    /// Other bodies take too much memory; the client may send this one again.
    Busy(CniError),
}

impl Default for Bodies {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(BUDGET_KIB)))
    }
}

impl Bodies {
    /// Reads a complete body, and returns it with its share of the memory for large bodies.
    pub(super) async fn read<B>(&self, body: B) -> Result<(Bytes, Share), BodyError>
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        let broken = |reason: String| {
            let text = format!("cannot read the request: {reason}");
            BodyError::Broken(CniError::new(CniError::DECODING_FAILURE, text))
        };
        let late = || format!("it was incomplete after {} s", TIME.as_secs());
        let share = self.share(body.size_hint().upper()).await?;
        let complete = Limited::new(body, api::MAX_MESSAGE).collect();
        match tokio::time::timeout(TIME, complete).await {
            Ok(Ok(body)) => Ok((body.to_bytes(), share)),
            Ok(Err(error)) => Err(broken(error_line(&*error))),
            Err(_) => Err(broken(late())),
        }
    }

    /// A body without a length counts as one of the maximum size.
    async fn share(&self, length: Option<u64>) -> Result<Share, BodyError> {
        let length = length.and_then(|length| usize::try_from(length).ok());
        let length = length.unwrap_or(api::MAX_MESSAGE).min(api::MAX_MESSAGE);
        if length <= SMALL {
            return Ok(None);
        }
        let share = u32::try_from(length.div_ceil(1024)).unwrap_or(u32::MAX);
        let acquired = Arc::clone(&self.0).acquire_many_owned(share);
        match tokio::time::timeout(TIME, acquired).await {
            Ok(Ok(share)) => Ok(Some(share)),
            _ => Err(BodyError::Busy(CniError::new(
                CniError::TRY_AGAIN_LATER,
                "other large requests take all the memory for requests",
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
    async fn large_bodies_wait_for_memory_and_small_ones_do_not() {
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
    async fn oversized_body_is_refused() {
        let refused = Bodies::default().read(body(api::MAX_MESSAGE + 1)).await;
        assert!(matches!(refused, Err(BodyError::Broken(_))));
    }
}

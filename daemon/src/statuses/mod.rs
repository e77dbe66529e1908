//! Network statuses on their way into pods. ADD and hot plug hand a status over while the container is locked, and one task writes it into the
//! pod after the runtime has its answer. A status stays marked as pending in the container's state until it is written, so that the next
//! daemon sends it again; a DEL cancels it.

mod queue;
mod writer;

pub use queue::{PodStatus, Statuses};
pub use writer::{all_written, resend, write};

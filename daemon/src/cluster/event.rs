//! Builds the events by which the daemon reports to pod owners and operators through the API server.

use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    jiff::Timestamp,
};

/// The namespace of events about objects without a namespace.
pub(crate) const CLUSTER_WIDE: &str = "default";

/// Returns an event of `component` about one object, with the current time.
pub(crate) fn event(
    component: &str,
    about: ObjectReference,
    is_warning: bool,
    reason: &str,
    message: String,
) -> Event {
    let now = Time(Timestamp::now());
    let name = about.name.as_deref().unwrap_or_default();
    let namespace = about.namespace.as_deref().unwrap_or(CLUSTER_WIDE);
    Event {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}.")),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        count: Some(1),
        first_timestamp: Some(now.clone()),
        last_timestamp: Some(now),
        message: Some(message),
        reason: Some(reason.to_owned()),
        source: Some(EventSource {
            component: Some(component.to_owned()),
            host: None,
        }),
        type_: Some(if is_warning { "Warning" } else { "Normal" }.to_owned()),
        involved_object: about,
        ..Event::default()
    }
}

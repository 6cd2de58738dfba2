//! The names of the segments that a metadata server knows. Only Moonrail's server tells them.

use moonrail_wire::directory::KeySpace;
use serde_json::Value;

use crate::error::{MetadataError, MetadataErrorKind};
use crate::http_client::KeyValueClient;

/// The names of the segments of this cluster (`MC_METADATA_CLUSTER_ID`; `None`: the common one) that the metadata server
/// at `url` knows, in order.
///
/// # Errors
/// The server cannot be reached; [`MetadataErrorKind::Unsupported`] where it keeps no list, as the genuine one does not.
pub fn list_segments(url: &str, cluster_id: Option<&str>) -> Result<Vec<String>, MetadataError> {
    let server = KeyValueClient::new(url)?;
    let unsupported = || {
        let text = "this metadata server does not list its segments, as Mooncake's does not: name them";
        MetadataError::new(MetadataErrorKind::Unsupported, url, text)
    };
    let body = server.listing()?.ok_or_else(unsupported)?;
    let listing: Value = serde_json::from_slice(&body).map_err(|_| unsupported())?;
    let segments = listing.get("segments").and_then(Value::as_array).ok_or_else(unsupported)?;
    let space = KeySpace::new(cluster_id);
    let text = |segment: &Value, key: &str| segment.get(key).and_then(Value::as_str).map(str::to_owned);
    let of_this_cluster =
        segments.iter().filter(|segment| text(segment, "space").as_deref() == Some(space.prefix()));
    let mut names: Vec<String> = of_this_cluster.filter_map(|segment| text(segment, "name")).collect();
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

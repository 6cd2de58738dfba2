//! The trace that a call is part of, for the target to join (docs/rail-protocol.md, section 11).

use moonrail_transport::{Control, Failure, Target, Work};
use moonrail_wire::TraceContext;
use moonrail_wire::rail::FEATURES;

use super::lane::Lane;
use super::opening;

/// Has the lane name the trace in front of its next batch, or none. A new lane is opened first: before its welcome it is not
/// known what the target takes.
pub(super) fn join(
    lane: &mut Lane,
    trace: Option<TraceContext>,
    target: &Target,
    work: &Work<'_>,
    control: &Control<'_>,
) -> Result<(), Failure> {
    let Some(rail) = &mut lane.rail else { return Ok(()) };
    if trace.is_some() && rail.is_new() {
        let features = opening::greet(&mut lane.stream, rail.epoch(), FEATURES, target, work, control)?;
        rail.welcomed(features);
    }
    rail.join(trace);
    Ok(())
}

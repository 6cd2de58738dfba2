//! Region tokens, presented on a lane before the call that may need them (docs/rail-protocol.md, section 9).

use moonrail_access::Wallet;
use moonrail_transport::{Code, Control, Failure, Stage, Target, Work};
use moonrail_wire::rail::{Answer, AnswerKind, FEATURES, Present, TOKEN};

use super::failure::{Reached, endpoint, failed};
use super::lane::Lane;
use super::opening::{self, Readiness};

/// Presents every token for the target's run, if there are new ones since the lane's last call. One that it does not take is
/// no failure: what it was needed for is refused then, and says so.
pub(super) fn catch_up(
    lane: &mut Lane,
    wallet: &Wallet,
    target: &Target,
    work: &Work<'_>,
    control: &Control<'_>,
) -> Result<(), Failure> {
    let version = wallet.version();
    if lane.presented == version {
        return Ok(());
    }
    let Some(rail) = &mut lane.rail else { return Ok(()) };
    let tokens = wallet.of(rail.epoch());
    if !tokens.is_empty() {
        if rail.is_new() {
            let features = opening::greet(&mut lane.stream, rail.epoch(), FEATURES, target, work, control)?;
            rail.welcomed(features);
        }
        if rail.features() & TOKEN != 0 {
            let mut ready = Readiness::new(&mut lane.stream, target, work, control);
            for token in tokens {
                let id = rail.take_id();
                let mut frame = Present { id, epoch: rail.epoch() }.encode().to_vec();
                frame.extend_from_slice(token.bytes());
                ready.send(&frame)?;
                match Answer::decode(&ready.receive()?) {
                    Ok(answer) if answer.id == id && answer.kind == AnswerKind::Present => {}
                    _ => {
                        let message = format!("{} did not answer a region token", endpoint(target));
                        let code = Code::ProtocolError;
                        return Err(failed(target, work, Reached::NOTHING, code, Stage::Connect, message));
                    }
                }
            }
        }
    }
    lane.presented = version;
    Ok(())
}

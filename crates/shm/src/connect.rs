//! Making a link: from a contact to a target whose identity is proven.
//!
//! Owns the order of the checks. It must not know batches.

use std::io;
use std::time::{Duration, Instant};

use moonrail_memory::cross::read_exact;
use moonrail_sys::host::{self, Namespace};
use moonrail_sys::local_socket::{self, PeerCredentials};
use moonrail_sys::pidfd::PidFd;
use moonrail_sys::poll::wait_readable;
use moonrail_sys::shared_words::{SharedView, SharedWords};
use moonrail_sys::{errno, poll::Ready};
use moonrail_transport::{Control, Stage};

use crate::contact::ShmContact;
use crate::failure::{Case, Trouble, WhyNot, is_forbidden};
use crate::layout::{self, head};
use crate::link::Link;
use crate::welcome::{MAX_LEN, Welcome};

/// Where this process is.
pub(crate) struct Here {
    boot_id: String,
    pid_namespace: u64,
    user_namespace: u64,
    network_namespace: u64,
    uid: u32,
}

impl Here {
    pub(crate) fn find() -> io::Result<Self> {
        Ok(Self {
            boot_id: host::boot_id()?,
            pid_namespace: host::namespace(Namespace::Pid)?,
            user_namespace: host::namespace(Namespace::User)?,
            network_namespace: host::namespace(Namespace::Network)?,
            uid: host::effective_uid(),
        })
    }

    pub(crate) fn same_host(&self, contact: &ShmContact) -> bool {
        contact.boot_id == self.boot_id
    }

    /// What stands between this process and the contact, as far as it can be seen from here.
    fn apart(&self, contact: &ShmContact) -> Option<&'static str> {
        if !self.same_host(contact) {
            Some("the peer is on another host")
        } else if contact.pid_namespace != self.pid_namespace {
            Some("the peer is in another pid namespace (another container)")
        } else if contact.user_namespace != self.user_namespace {
            Some("the peer is in another user namespace")
        } else if contact.network_namespace != self.network_namespace {
            Some("the peer is in another network namespace, where its socket is")
        } else {
            None
        }
    }
}

/// Connects, maps, and proves who is there.
pub(crate) fn connect(
    here: &Here,
    contact: &ShmContact,
    case: Case<'_>,
    control: &Control<'_>,
) -> Result<Link, Trouble> {
    let cannot = |why| case.cannot(Stage::Connect, why);
    if let Some(apart) = here.apart(contact) {
        return Err(cannot(WhyNot::lasting(apart)));
    }
    let process = PidFd::open(contact.pid).map_err(|error| match error.raw_os_error() {
        Some(ESRCH) => ended(case),
        _ => cannot(system("its process cannot be held", &error)),
    })?;
    let limit = Instant::now() + control.connect;
    let wait = Wait { case, control, limit };
    let socket = loop {
        match local_socket::connect(contact.socket.as_bytes()) {
            Ok(socket) => break socket,
            // It has no room for another connection now.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let slice = wait.slice("its socket takes no connection")?;
                std::thread::sleep(slice.min(Duration::from_millis(1)));
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Err(ended(case)),
            Err(error) => return Err(cannot(system("its socket", &error))),
        }
    };
    let PeerCredentials { pid, uid } = local_socket::peer_credentials(&socket)
        .map_err(|error| cannot(system("its socket's credentials", &error)))?;
    if uid != here.uid {
        return Err(cannot(WhyNot::lasting(format!(
            "the peer runs as user {uid}, this process as {}",
            here.uid
        ))));
    }
    if pid != contact.pid {
        return Err(case.gone(Stage::Connect, "another process than the peer listens on its socket"));
    }
    let (welcome, fds) = loop {
        let slice = wait.slice("it does not answer on its socket: its process is stopped or stuck")?;
        match wait_readable(&socket, Some(slice)) {
            Ok(Ready::Ready(_)) => {}
            Ok(_) => continue,
            Err(error) => return Err(cannot(system("waiting for its answer", &error))),
        }
        let mut bytes = [0; MAX_LEN];
        match local_socket::receive(&socket, &mut bytes) {
            Ok((0, _)) => return Err(ended(case)),
            Ok((len, fds)) => break (Welcome::decode(&bytes[..len]), fds),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Err(ended(case)),
            Err(error) => return Err(cannot(system("its answer", &error))),
        }
    };
    let (nonce_at, epoch) = match welcome {
        Some(Welcome::Come { nonce_at, epoch }) => (nonce_at, epoch),
        Some(Welcome::Refused(why)) => return Err(cannot(WhyNot::passing(format!("it refuses: {why}")))),
        None => return Err(cannot(WhyNot::lasting("its answer makes no sense"))),
    };
    let [mirror, page] = fds.as_slice() else {
        // The kernel drops what this process has no room for.
        return Err(cannot(WhyNot::passing("its answer came without its descriptors (limit reached?)")));
    };
    let mapping = |error: io::Error| cannot(system("its shared memory", &error));
    let mirror = SharedView::open(mirror, layout::MIRROR_WORDS).map_err(mapping)?;
    let page = SharedWords::open(page, layout::PAGE_WORDS).map_err(mapping)?;
    if mirror.load(head::MAGIC) != Some(layout::MAGIC) || mirror.load(head::EPOCH) != Some(epoch) {
        return Err(cannot(WhyNot::lasting("its shared page makes no sense")));
    }
    let pid = i32::try_from(pid).map_err(|_| cannot(WhyNot::lasting("its process number makes no sense")))?;
    prove(pid, nonce_at, contact.nonce, case)?;
    Ok(Link::new(pid, process, socket, mirror, page))
}

/// Reads the nonce out of the process itself.
fn prove(pid: i32, nonce_at: u64, nonce: [u64; 2], case: Case<'_>) -> Result<(), Trouble> {
    let mut bytes = [0; 16];
    match read_exact(pid, nonce_at, &mut bytes) {
        Ok(()) => {}
        Err(error) if is_forbidden(&error) => {
            return Err(case.cannot(Stage::Connect, WhyNot::forbidden(&error)));
        }
        Err(error) if error.raw_os_error() == Some(ESRCH) => return Err(ended(case)),
        Err(error) if errno::is_bad_address(&error) => return Err(impostor(case)),
        Err(error) => return Err(case.cannot(Stage::Connect, system("reading its memory", &error))),
    }
    let expected: Vec<u8> = nonce.iter().flat_map(|half| half.to_ne_bytes()).collect();
    if bytes.as_slice() == expected { Ok(()) } else { Err(impostor(case)) }
}

fn ended(case: Case<'_>) -> Trouble {
    case.gone(Stage::Connect, "the peer's process, or its engine, has ended")
}

fn impostor(case: Case<'_>) -> Trouble {
    case.gone(Stage::Connect, "the process is not the one that published the contact: the peer was restarted")
}

fn system(what: &str, error: &io::Error) -> WhyNot {
    WhyNot::passing(format!("{what}: {error}"))
}

struct Wait<'a> {
    case: Case<'a>,
    control: &'a Control<'a>,
    limit: Instant,
}

impl Wait<'_> {
    /// How long the next sleep may be.
    fn slice(&self, silence: &str) -> Result<Duration, Trouble> {
        if let Some(stop) = (self.control.stop)() {
            return Err(self.case.stopped(Stage::Connect, stop));
        }
        let now = Instant::now();
        self.control.slice(now, self.limit).ok_or_else(|| {
            if self.control.expired(now) {
                self.case.deadline(Stage::Connect)
            } else {
                self.case.silent(silence)
            }
        })
    }
}

/// No such process; `std` has no name for it.
pub(crate) const ESRCH: i32 = 3;

//! Where an engine runs, as far as others need to know to tell whether they share memory with it.

/// The longest contact that is looked at.
const LONGEST: usize = 512;

/// What engines share that reach each other without a socket: host, and namespaces of processes, users and networks.
/// `contact` is what a Moonrail announces for the same-host path (docs/same-host.md); `None` where it says less than that.
#[must_use]
pub fn place_of(contact: &str) -> Option<String> {
    if contact.len() > LONGEST {
        return None;
    }
    let mut words = contact.split(' ');
    words.next().filter(|format| *format == "moonrail-shm/1")?;
    let pairs: Vec<(&str, &str)> = words.filter_map(|word| word.split_once('=')).collect();
    let find =
        |key| pairs.iter().find(|pair| pair.0 == key).map(|pair| pair.1).filter(|text| !text.is_empty());
    let parts = [find("boot")?, find("pidns")?, find("userns")?, find("netns")?];
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_what_all_processes_of_one_host_and_user_have_in_common() {
        let one = "moonrail-shm/1 boot=b-1 pid=7 pidns=1 userns=2 netns=3 socket=s nonce=00";
        let other = "moonrail-shm/1 boot=b-1 pid=9 pidns=1 userns=2 netns=3 socket=t nonce=11 later=1";
        assert_eq!(place_of(one).as_deref(), Some("b-1/1/2/3"));
        assert_eq!(place_of(one), place_of(other));
        assert_ne!(place_of(one), place_of(&one.replace("netns=3", "netns=4")));
    }

    #[test]
    fn what_is_not_understood_is_no_place() {
        for contact in
            ["", "moonrail-shm/2 boot=b pidns=1 userns=2 netns=3", "moonrail-shm/1 boot=b pidns=1 userns=2"]
        {
            assert_eq!(place_of(contact), None, "{contact}");
        }
        assert_eq!(
            place_of(&format!("moonrail-shm/1 boot={} pidns=1 userns=2 netns=3", "b".repeat(600))),
            None
        );
    }
}

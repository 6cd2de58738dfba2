//! What is allowed although access control is on.

use std::str::FromStr;

/// What is allowed although access control is on, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Allow {
    /// `mooncake`: peers that know no key, in both roles.
    pub mooncake: bool,
    /// `same-host`: copies between processes of this host and user, which only the kernel checks.
    pub same_host: bool,
}

/// A name that [`Allow`] does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is nothing that can be allowed; it takes a list of mooncake and same-host")]
pub struct UnknownName(String);

impl FromStr for Allow {
    type Err = UnknownName;

    /// Names between commas; an empty text allows nothing.
    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let mut allow = Self::default();
        for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            match name {
                "mooncake" => allow.mooncake = true,
                "same-host" => allow.same_host = true,
                other => return Err(UnknownName(other.to_owned())),
            }
        }
        Ok(allow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_others_refused() {
        assert_eq!("".parse(), Ok(Allow::default()));
        assert_eq!("mooncake".parse(), Ok(Allow { mooncake: true, same_host: false }));
        assert_eq!(" same-host , mooncake".parse(), Ok(Allow { mooncake: true, same_host: true }));
        assert_eq!("mooncak".parse::<Allow>(), Err(UnknownName("mooncak".to_owned())));
    }
}

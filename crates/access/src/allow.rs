//! What is allowed although access control or TLS is on.

use std::str::FromStr;

/// What is allowed although access control or TLS is on, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Allow {
    /// `mooncake`: peers that know neither key nor TLS, in both roles.
    pub mooncake: bool,
    /// `same-host`: copies between processes of this host and user, which only the kernel checks.
    pub same_host: bool,
    /// `clear`: Moonrails that have no TLS, in both roles; the key, where there is one, is still to be proven.
    pub clear: bool,
    /// `anonymous`: callers that show no certificate of their own.
    pub anonymous: bool,
}

impl Allow {
    /// Whether an engine with TLS may be spoken to without.
    #[must_use]
    pub fn without_tls(self) -> bool {
        self.clear || self.mooncake
    }
}

/// A name that [`Allow`] does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is nothing that can be allowed; it takes a list of mooncake, same-host, clear and anonymous")]
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
                "clear" => allow.clear = true,
                "anonymous" => allow.anonymous = true,
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
        assert_eq!("mooncake".parse(), Ok(Allow { mooncake: true, ..Allow::default() }));
        assert_eq!(
            " same-host , mooncake".parse(),
            Ok(Allow { mooncake: true, same_host: true, ..Allow::default() })
        );
        assert_eq!("clear,anonymous".parse(), Ok(Allow { clear: true, anonymous: true, ..Allow::default() }));
        assert_eq!("mooncak".parse::<Allow>(), Err(UnknownName("mooncak".to_owned())));
    }
}

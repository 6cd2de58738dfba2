//! Random bytes from the kernel.

use std::io;

/// Fills `into` with bytes that nobody can guess.
///
/// # Errors
/// A sandbox hides the call.
pub fn fill(into: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < into.len() {
        let rest = &mut into[done..];
        // SAFETY: `rest` is exclusively borrowed and `rest.len()` bytes long.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(got) {
            Ok(got) => done += got,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    #[test]
    fn two_fills_differ() {
        let (mut first, mut second) = ([0; 16], [0; 16]);
        super::fill(&mut first).unwrap();
        super::fill(&mut second).unwrap();
        assert_ne!(first, second);
    }
}

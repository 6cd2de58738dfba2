//! The `moonrail` command.

fn main() {
    std::process::exit(moonrail_cli::run(std::env::args_os().collect()));
}

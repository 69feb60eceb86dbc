//! Bytes become each of the files that an operator writes: of a service, its application's system calls, a gateway and
//! the daemon.
#![no_main]

use cli::commands::sdp::GatewayFile;
use service::config::RunConfig;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = RunConfig::parse(text);
    let _ = GatewayFile::parse(text);
    let _ = daemon::Config::parse(text);
    if let Ok(policy) = sandbox::SyscallPolicy::from_toml(text) {
        let _ = policy.compile(None);
    }
});

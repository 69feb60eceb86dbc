//! `[policy]`: what an application in a process of its own may do on the network.
//!
//! ```toml
//! [policy]
//! outgoing = "deny"             # what no rule is about: allow or deny
//! listen = ["8000-8999"]        # ports that it may open and close while it runs; none where nothing is said
//! bytes_per_s = 125_000_000     # what it sends; likewise packets_per_s, and connections_per_s that it has made
//!
//! [[policy.rules]]              # the first that is about a peer decides
//! verdict = "allow"
//! direction = "out"             # the application begins; in: the peer does
//! transport = "tcp"             # or udp; both where nothing is said
//! network = "10.0.0.0/8"        # the peers; all where nothing is said
//! ports = "80-90"               # the peer's, or with `in` the application's; all where nothing is said
//! ```

use std::ops::RangeInclusive;

use anyhow::{Context, bail};
use process::{Near, Rates, Toll};
use runtime::policy::{Direction, NetworkPolicy, Rule, Transport};
use serde::Deserialize;
use tailplane::Prefix;

use super::config_values::DomainName;

/// See the module's comment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyConfig {
    /// Where the application begins and no rule is about it.
    outgoing: Verdict,
    /// Where the peer begins and no rule is about it.
    incoming: Verdict,
    /// Ports that it may open while it runs, beside those of `[service]`.
    listen: Vec<String>,
    /// See [`Rates::bytes`].
    bytes_per_s: Option<u64>,
    /// See [`Rates::packets`].
    packets_per_s: Option<u64>,
    /// See [`Rates::connections`].
    connections_per_s: Option<u64>,
    /// In the order in which they are asked.
    rules: Vec<RuleConfig>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    #[default]
    Allow,
    Deny,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Way {
    In,
    Out,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TransportName {
    Tcp,
    Udp,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleConfig {
    verdict: Verdict,
    direction: Way,
    transport: Option<TransportName>,
    network: Option<String>,
    ports: Option<String>,
}

impl PolicyConfig {
    /// The rules, where datagrams may only come from the ports that the service has.
    ///
    /// # Errors
    /// A network or range of ports that is none: the key, the value and what is allowed.
    pub fn network(&self, own_ports: RangeInclusive<u16>) -> anyhow::Result<NetworkPolicy> {
        let rules = self.rules.iter().enumerate().map(|(place, rule)| {
            rule.rule().with_context(|| format!("`policy.rules`, number {}", place + 1))
        });
        let listen = self.listen.iter().map(|ports| parse_ports("policy.listen", ports));
        Ok(NetworkPolicy {
            listen: listen.collect::<anyhow::Result<_>>()?,
            rules: rules.collect::<anyhow::Result<_>>()?,
            allow_out: self.outgoing == Verdict::Allow,
            allow_in: self.incoming == Verdict::Allow,
            source_ports: Some(vec![own_ports]),
        })
    }

    /// Keeps the threads' sides of the domain to the rates, all of them together.
    pub fn charge(&self, nears: Vec<Near<'static>>) -> Vec<Near<'static>> {
        let toll = Toll::new(self.rates());
        nears.into_iter().map(|near| near.charged_to(toll.as_ref())).collect()
    }

    /// How much it may do.
    pub fn rates(&self) -> Rates {
        Rates {
            bytes: self.bytes_per_s,
            packets: self.packets_per_s,
            connections: self.connections_per_s,
        }
    }

    /// Whether the section fits the rest of the file.
    ///
    /// # Errors
    /// It says something that would not be kept: the key, the value and what is allowed.
    pub fn check(&self, domain: DomainName) -> anyhow::Result<()> {
        if *self != Self::default() && domain == DomainName::Inline {
            bail!(
                "`[policy]` is for an application in a process of its own, and `dataplane.domain` is \"inline\": \
                 one that is linked into the dataplane could do as it likes; set it to \"process\", or leave the \
                 section out"
            );
        }
        let rates = [
            ("bytes_per_s", self.bytes_per_s),
            ("packets_per_s", self.packets_per_s),
            ("connections_per_s", self.connections_per_s),
        ];
        if let Some((name, _)) = rates.iter().find(|(_, rate)| *rate == Some(0)) {
            bail!("`policy.{name}` is 0; allowed: 1 or more, or no such line for no limit");
        }
        self.network(0..=0).map(|_| ())
    }
}

impl RuleConfig {
    fn rule(&self) -> anyhow::Result<Rule> {
        Ok(Rule {
            allow: self.verdict == Verdict::Allow,
            direction: match self.direction {
                Way::In => Direction::In,
                Way::Out => Direction::Out,
            },
            transport: self.transport.map(|transport| match transport {
                TransportName::Tcp => Transport::Tcp,
                TransportName::Udp => Transport::Udp,
            }),
            network: self.network.as_deref().map(parse_network).transpose()?,
            ports: {
                let parse = |ports| parse_ports("ports", ports);
                self.ports.as_deref().map_or(Ok(0..=u16::MAX), parse)?
            },
        })
    }
}

/// `10.0.0.0/8` or `2001:db8::/32`, or one address.
fn parse_network(text: &str) -> anyhow::Result<Prefix> {
    let host = || text.parse().map(Prefix::host);
    text.parse().or_else(|_| host()).or_else(|_| {
        bail!(
            "`network` is '{text}'; allowed: an address as in 10.0.0.1 or 2001:db8::1, or a network as in \
             10.0.0.0/8 or 2001:db8::/32"
        )
    })
}

/// `80`, or `80-90`.
fn parse_ports(key: &str, text: &str) -> anyhow::Result<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse::<u16>(), last.trim().parse::<u16>()) {
        (Ok(first), Ok(last)) if first <= last => Ok(first..=last),
        _ => bail!("`{key}` is '{text}'; allowed: a port as in 80, or a range as in 80-90"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailplane::Endpoint;

    fn read(text: &str) -> anyhow::Result<PolicyConfig> {
        let config: PolicyConfig = toml::from_str(text)?;
        config.check(DomainName::Process)?;
        Ok(config)
    }

    #[test]
    fn the_example_does_what_it_says() {
        let example: String = include_str!("policy_config.rs")
            .lines()
            .skip_while(|line| !line.starts_with("//! ```toml"))
            .skip(1)
            .take_while(|line| !line.starts_with("//! ```"))
            .map(|line| format!("{}\n", line.trim_start_matches("//!")))
            .collect();
        let config = read(&example.replace("[policy]", "").replace("[[policy.", "[["))
            .expect("the example is allowed");
        let policy = config.network(7..=8).expect("checked");
        let peer = |last: u8, port| Endpoint::new(tailplane::Ipv4Addr::new(last, 0, 0, 1), port);
        let opens = |peer| policy.allows(Direction::Out, Transport::Tcp, peer, 7);
        assert!(opens(peer(10, 85)) && !opens(peer(10, 91)) && !opens(peer(11, 85)));
        assert!(policy.allows(Direction::In, Transport::Tcp, peer(11, 85), 7));
        let sends = policy.allows(Direction::Out, Transport::Udp, peer(10, 85), 7);
        assert!(!sends, "the rule is about TCP");
        assert_eq!(config.rates().bytes, Some(125_000_000));
        assert!(policy.allows_listening(8999) && !policy.allows_listening(9000));
    }

    #[test]
    fn without_the_section_everything_is_allowed_but_other_ports_datagrams() {
        let config = PolicyConfig::default();
        let policy = config.network(7..=8).expect("nothing to go wrong");
        let anybody = Endpoint::new(tailplane::Ipv4Addr::new(1, 2, 3, 4), 5);
        for direction in [Direction::In, Direction::Out] {
            for transport in [Transport::Tcp, Transport::Udp] {
                assert!(policy.allows(direction, transport, anybody, 7));
            }
        }
        assert!(policy.allows_source(8) && !policy.allows_source(9));
        assert!(!policy.allows_listening(7), "the configuration's own are not the policy's");
        assert_eq!(config.rates(), Rates::default());
        assert!(config.check(DomainName::Inline).is_ok());
    }

    #[test]
    fn what_is_wrong_is_named() {
        let rule =
            |more: &str| format!("[[rules]]\nverdict = \"deny\"\ndirection = \"in\"\n{more}");
        for (text, named) in [
            (rule("network = \"10.0.0.0/33\""), "10.0.0.0/33"),
            (rule("network = \"everybody\""), "everybody"),
            (rule("ports = \"90-80\""), "90-80"),
            (rule("ports = \"70000\""), "number 1"),
            ("listen = [\"8000-\"]".to_owned(), "policy.listen"),
            ("packets_per_s = 0".to_owned(), "policy.packets_per_s"),
            ("outgoing = \"perhaps\"".to_owned(), "perhaps"),
        ] {
            let error = format!("{:#}", read(&text).expect_err("refused"));
            assert!(error.contains(named), "{text}: {error}");
        }
        let some = PolicyConfig { bytes_per_s: Some(1), ..PolicyConfig::default() };
        let error = some.check(DomainName::Inline).expect_err("it would not be kept").to_string();
        assert!(error.contains("dataplane.domain"), "{error}");
    }
}

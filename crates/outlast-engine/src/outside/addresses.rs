//! Which addresses a URL of a user may lead to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where an address leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// The internet.
    Public,
    /// This machine, or the network it is in.
    Private,
    /// Nowhere that anybody has a reason to call: the credentials of cloud machines, multicast, reserved blocks, and
    /// IPv6 addresses that hide an IPv4 address.
    Never,
}

pub(super) fn reach(address: IpAddr) -> Reach {
    match address {
        IpAddr::V4(address) => reach_v4(address),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(mapped) => reach_v4(mapped),
            None => reach_v6(address),
        },
    }
}

/// Blocks of the registry of special addresses (RFC 6890 and its updates) that are not public.
const V4: &[(Ipv4Addr, u32, Reach)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8, Reach::Never),
    (Ipv4Addr::new(10, 0, 0, 0), 8, Reach::Private),
    (Ipv4Addr::new(100, 64, 0, 0), 10, Reach::Private), // carrier-grade NAT
    (Ipv4Addr::new(127, 0, 0, 0), 8, Reach::Private),
    (Ipv4Addr::new(168, 63, 129, 16), 32, Reach::Never), // Azure's metadata
    (Ipv4Addr::new(169, 254, 0, 0), 16, Reach::Never),   // link-local: the metadata of other clouds
    (Ipv4Addr::new(172, 16, 0, 0), 12, Reach::Private),
    (Ipv4Addr::new(192, 0, 0, 0), 24, Reach::Never),
    (Ipv4Addr::new(192, 0, 2, 0), 24, Reach::Never),
    (Ipv4Addr::new(192, 88, 99, 0), 24, Reach::Never),
    (Ipv4Addr::new(192, 168, 0, 0), 16, Reach::Private),
    (Ipv4Addr::new(198, 18, 0, 0), 15, Reach::Never),
    (Ipv4Addr::new(198, 51, 100, 0), 24, Reach::Never),
    (Ipv4Addr::new(203, 0, 113, 0), 24, Reach::Never),
    (Ipv4Addr::new(224, 0, 0, 0), 3, Reach::Never), // multicast, reserved, broadcast
];
/// The metadata of Alibaba's cloud, inside carrier-grade NAT.
const ALIBABA: Ipv4Addr = Ipv4Addr::new(100, 100, 100, 200);

fn reach_v4(address: Ipv4Addr) -> Reach {
    if address == ALIBABA {
        return Reach::Never;
    }
    let is_in = |(block, bits, _): &&(Ipv4Addr, u32, Reach)| {
        (address.to_bits() ^ block.to_bits()).checked_shr(32 - bits) == Some(0)
    };
    V4.iter().find(is_in).map_or(Reach::Public, |(_, _, reach)| *reach)
}

/// Blocks of IPv6, the first match counts. Only `2000::/3` is assigned to the internet; what is left, like NAT64
/// (`64:ff9b::/96`), may lead to any IPv4 address.
const V6: &[(Ipv6Addr, u32, Reach)] = &[
    (Ipv6Addr::LOCALHOST, 128, Reach::Private),
    (Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), 128, Reach::Never), // Amazon's metadata
    (Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), 128, Reach::Never),  // Google's metadata
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, Reach::Private),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, Reach::Never), // Teredo and other tunnels
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, Reach::Never),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, Reach::Never), // 6to4
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, Reach::Never),
    (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3, Reach::Public),
];

fn reach_v6(address: Ipv6Addr) -> Reach {
    let is_in = |(block, bits, _): &&(Ipv6Addr, u32, Reach)| {
        (address.to_bits() ^ block.to_bits()).checked_shr(128 - bits) == Some(0)
    };
    V6.iter().find(is_in).map_or(Reach::Never, |(_, _, reach)| *reach)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(address: &str) -> Reach {
        reach(address.parse().unwrap())
    }

    #[test]
    fn addresses_of_the_internet_are_public() {
        for address in ["93.184.216.34", "1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111"] {
            assert_eq!(of(address), Reach::Public, "{address}");
        }
    }

    #[test]
    fn addresses_of_a_network_are_private() {
        for address in [
            "127.0.0.1",
            "127.9.9.9",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.0.1",
            "100.64.0.1",
            "::1",
            "fd12::1",
            "::ffff:10.0.0.1",
            "::ffff:127.0.0.1",
        ] {
            assert_eq!(of(address), Reach::Private, "{address}");
        }
    }

    #[test]
    fn metadata_and_addresses_that_hide_another_are_never_called() {
        for address in [
            "169.254.169.254",
            "168.63.129.16",
            "100.100.100.200",
            "fd00:ec2::254",
            "fd20:ce::254",
            "fe80::1",
            "0.0.0.0",
            "::",
            "255.255.255.255",
            "224.0.0.1",
            "240.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "::7f00:1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "ff02::1",
            "203.0.113.7",
            "192.0.0.1",
        ] {
            assert_eq!(of(address), Reach::Never, "{address}");
        }
    }
}

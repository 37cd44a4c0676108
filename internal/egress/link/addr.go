package link

import (
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
)

// The same in every box: boxes share no network, so that no plan of addresses is needed.
var (
	// BoxAddr is the box's address.
	BoxAddr = netip.MustParseAddr("10.0.2.15")
	// Gateway is the box's default route. It answers ARP and pings.
	Gateway = netip.MustParseAddr("10.0.2.2")
	// DNSAddr is the box's name server, on port 53 of UDP and TCP.
	DNSAddr = netip.MustParseAddr("10.0.2.3")
	// Subnet is the box's own.
	Subnet = netip.MustParsePrefix("10.0.2.0/24")
)

// ResolvConf is the text of the box's /etc/resolv.conf.
const ResolvConf = "nameserver 10.0.2.3\noptions timeout:3 attempts:2\n"

// Device is the name of the interface in the box.
const Device = "eth0"

// MTU of the device; segments are larger by offload.
const MTU = 1500

var (
	boxMAC     = tcpip.LinkAddress("\x02\x64\x73\x65\x63\x15")
	gatewayMAC = tcpip.LinkAddress("\x02\x64\x73\x65\x63\x02")
)

// BoxMAC is the fixed address of the device.
func BoxMAC() tcpip.LinkAddress { return boxMAC }

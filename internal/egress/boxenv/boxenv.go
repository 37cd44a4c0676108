// Package boxenv is what the programs of a networked box read: variables that make common tools
// give up at once where the policy refuses them, and trust the project's authority, by which a
// credential is added and a refusal explained, and find the proxy of a box that has no device.
package boxenv

// Impatient makes tools that try again for many seconds report a refusal at once. A caller's own
// environment wins over it.
func Impatient() []string {
	return []string{
		"PIP_RETRIES=0", "PIP_DISABLE_PIP_VERSION_CHECK=1", "UV_HTTP_RETRIES=0",
		"npm_config_fetch_retries=0", "npm_config_update_notifier=false", "npm_config_audit=false", "npm_config_fund=false",
	}
}

// Trust makes tools trust the certificates of a bundle file in the box, which must hold the usual authorities
// too: most of these variables replace a tool's own list.
func Trust(bundle string) []string {
	return []string{
		"SSL_CERT_FILE=" + bundle, "CURL_CA_BUNDLE=" + bundle, "REQUESTS_CA_BUNDLE=" + bundle, "PIP_CERT=" + bundle,
		"GIT_SSL_CAINFO=" + bundle, "NODE_EXTRA_CA_CERTS=" + bundle, "npm_config_cafile=" + bundle,
	}
}

// Proxy gives the variables by which programs find a proxy at addr, in both spellings; what is on loopback
// needs none.
func Proxy(addr string) []string {
	url := "http://" + addr
	const direct = "localhost,127.0.0.1,::1"
	return []string{
		"http_proxy=" + url, "https_proxy=" + url, "all_proxy=" + url, "no_proxy=" + direct,
		"HTTP_PROXY=" + url, "HTTPS_PROXY=" + url, "ALL_PROXY=" + url, "NO_PROXY=" + direct,
	}
}

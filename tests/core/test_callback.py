"""Callback URLs: every way to spell a private address, and every URL that two programs read differently."""

from ipaddress import ip_address

import pytest

from forebay.core.callback import CallbackRules, address_problem, read_callback

PUBLIC = CallbackRules()
PRIVATE = CallbackRules(allow_private=True)

REFUSED = [
    # loopback
    "https://127.0.0.1/", "https://127.1/", "https://127.0.1/", "https://2130706433/", "https://0x7f000001/",
    "https://0x7f.0.0.1/", "https://0x7f.1/", "https://017700000001/", "https://0177.0.0.1/",
    "https://127.0.0.01/", "https://127.0.0.1./", "https://127.255.255.254/", "https://[::1]/",
    "https://[0:0:0:0:0:0:0:1]/", "https://[::ffff:127.0.0.1]/", "https://[::ffff:7f00:1]/",
    "https://[::127.0.0.1]/", "https://localhost/", "https://LOCALHOST/", "https://localhost./",
    "https://a.localhost/", "https://0/", "https://0.0.0.0/", "https://[::]/", "https://0x/",
    # private, shared, link-local, metadata
    "https://10.0.0.1/", "https://10.1/", "https://0x0a000001/", "https://172.16.0.1/",
    "https://172.31.255.255/", "https://192.168.1.1/", "https://3232235777/", "https://100.64.0.1/",
    "https://100.100.100.200/", "https://169.254.169.254/", "https://2852039166/", "https://0xa9fea9fe/",
    "https://[fe80::1]/", "https://[fe80::1%25eth0]/", "https://[fe80::1%eth0]/", "https://[fc00::1]/",
    "https://[fd00::1]/", "https://[fd00:ec2::254]/", "https://[::ffff:169.254.169.254]/",
    # translated, tunnelled, reserved, multicast
    "https://[64:ff9b::7f00:1]/", "https://[64:ff9b::8.8.8.8]/", "https://[64:ff9b:1::1]/",
    "https://[2002:7f00:1::]/", "https://[2002:0a00:0001::1]/", "https://[2001:0:4136:e378::1]/",
    "https://[2001:db8::1]/", "https://[3fff::1]/", "https://[fec0::1]/", "https://[100::1]/",
    "https://[ff02::1]/", "https://224.0.0.1/", "https://255.255.255.255/", "https://240.0.0.1/",
    "https://192.0.2.1/", "https://198.51.100.7/", "https://203.0.113.9/", "https://198.18.0.1/",
    "https://192.0.0.192/", "https://192.88.99.1/",
    # two readings
    "https://example.com@127.0.0.1/", "https://127.0.0.1@example.com/", "https://user:pw@example.com/",
    "https://example.com\\@127.0.0.1/", "https://example.com#@127.0.0.1/", "https://example.com%00.evil/",
    "https://exa%6dple.com/", "https://１２７.0.0.1/", "https://127。0。0。1/", "https://ⓛocalhost/",
    "https://example.com\r\nHost: x/", "https://example.com/\r\nX: y", "https://example.com/ x",
    "https://\t127.0.0.1/", " https://example.com/", "https://example.com/\x00", "https:///example.com/",
    "https://", "https://:443/", "https://[::1", "https://::1/", "https://[1.2.3.4]/", "https://a..b/",
    "https://.example.com/", "https://example.com../", "https://-example.com/", "https://a_b-.example/",
    "https://intranet/", "https://example.com,127.0.0.1/", "https://example.com;127.0.0.1/",
    "https://example.com:443:80/", "https://1.2.3.4.5/", "https://256.1.1.1/", "https://1.2.3/",
    # schemes and ports
    "http://example.com/", "ftp://example.com/", "file:///etc/passwd", "gopher://example.com/",
    "javascript:alert(1)", "//example.com/", "example.com/hook", "", "https:example.com",
    "https://example.com:0/", "https://example.com:22/", "https://example.com:80/",
    "https://example.com:65536/", "https://example.com:/", "https://example.com:0443/",
    "https://example.com:+443/", "https://example.com:44 3/", "https://example.com:8443/",
    "https://example.com/#fragment", "https://example.com/" + "x" * 2048,
]  # fmt: skip

TAKEN = {
    "https://example.com": ("example.com", 443, "/", "example.com"),
    "HTTPS://Example.COM/Hook?x=1&y=%20": ("example.com", 443, "/Hook?x=1&y=%20", "example.com"),
    "https://example.com?x=1": ("example.com", 443, "/?x=1", "example.com"),
    "https://example.com./x": ("example.com", 443, "/x", "example.com"),
    "https://example.com:443/x": ("example.com", 443, "/x", "example.com"),
    "https://xn--bcher-kva.example/x": ("xn--bcher-kva.example", 443, "/x", "xn--bcher-kva.example"),
    "https://8.8.8.8/x": ("8.8.8.8", 443, "/x", "8.8.8.8"),
    "https://[2606:4700::1111]/x": ("2606:4700::1111", 443, "/x", "[2606:4700::1111]"),
    "https://a_b.example/x": ("a_b.example", 443, "/x", "a_b.example"),
}

ALLOWED_INSIDE = [
    "http://127.0.0.1:8080/hook", "http://localhost:9/hook", "https://10.0.0.7/", "http://[::1]:81/",
    "http://intranet/x", "http://192.168.1.1/", "http://[fd12::1]/", "http://[::ffff:10.0.0.1]/",
    "https://100.64.0.1/", "https://example.com:22/",
]  # fmt: skip
NEVER = [
    "http://169.254.169.254/latest", "http://[fd00:ec2::254]/", "http://100.100.100.200/", "http://0.0.0.0/",
    "http://224.0.0.1/", "http://[fe80::1]/", "http://[::]/", "http://2130706433/", "http://127.1/",
    "http://[::ffff:169.254.169.254]/", "http://u:p@127.0.0.1/", "http://255.255.255.255/",
    "http://[64:ff9b::7f00:1]/", "http://[2002:7f00:1::]/",
]  # fmt: skip


@pytest.mark.parametrize("url", REFUSED, ids=range(len(REFUSED)))
def test_it_is_refused_with_a_rule(url):
    with pytest.raises(ValueError, match="^must "):
        read_callback(url, PUBLIC)


def test_the_table_is_as_long_as_it_should_be():
    assert len(set(REFUSED)) >= 100


@pytest.mark.parametrize("url", TAKEN)
def test_it_is_read_as_it_says(url):
    found = read_callback(url, PUBLIC)
    assert (found.host, found.port, found.target, found.authority) == TAKEN[url]


@pytest.mark.parametrize("url", ALLOWED_INSIDE)
def test_private_addresses_are_for_those_who_allow_them(url):
    assert read_callback(url, PRIVATE)
    with pytest.raises(ValueError, match="^must "):
        read_callback(url, PUBLIC)


@pytest.mark.parametrize("url", NEVER)
def test_some_are_never_allowed(url):
    with pytest.raises(ValueError, match="^must "):
        read_callback(url, PRIVATE)


def test_ports_that_are_listed_are_allowed():
    rules = CallbackRules(ports=frozenset({443, 8443}))
    assert read_callback("https://example.com:8443/x", rules).authority == "example.com:8443"


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.0.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1", "::1", "fe80::1%eth0",
     "fd00::1", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1", "2001::1", "::8.8.8.8", "5f00::1"],
)  # fmt: skip
def test_an_address_that_a_name_led_to_is_refused(address):
    assert address_problem(ip_address(address), PUBLIC) is not None


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "2a00:1450:4001::1"])
def test_a_global_address_is_taken(address):
    assert address_problem(ip_address(address), PUBLIC) is None


@pytest.mark.parametrize("url", ["http://example.com/", "https://127.0.0.1/", "https://localhost/hook"])
def test_who_tries_it_on_one_machine_is_told_which_setting_allows_that(url):
    with pytest.raises(ValueError, match="webhooks_allow_private"):
        read_callback(url, PUBLIC)
    assert read_callback(url, PRIVATE)
    with pytest.raises(ValueError, match=r"public address: [^()]*$"):  # no setting allows that
        read_callback("https://169.254.169.254/", PRIVATE)

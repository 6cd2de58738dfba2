"""The interoperability matrix: Moonrail against genuine Mooncake releases, each as initiator and as target."""

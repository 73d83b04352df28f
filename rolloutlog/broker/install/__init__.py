"""What an embedded broker is made of: a Java and Kafka's jars, fetched once."""
